"""A checkpoint on a host: downloaded by a job that resumes, hashed before it gets its name, known by its receipt."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.operations import jobs, remote
from rigup.operations.steps import step
from rigup.operations.weights_sending import send_weights
from rigup.plan import Checkpoint


class WeightsComplete(FactBase[bool]):
    """Whether the receipt of a checkpoint covers every file that the job (JSON) names, and the files are as it says."""

    @staticmethod
    def default() -> bool:
        return False

    def command(self, job: str) -> str:
        program = f"{layout.PROGRAMS}/weights_folder.py"
        return f"test -f {program} && printf %s {_quoted(job)} | python3 {program} || true"

    def process(self, output: list[str]) -> bool:
        for line in reversed(output):
            if line.startswith("{"):
                return bool(json.loads(line)["complete"])
        return False


@operation()
def checkpoint_files(
    checkpoint: Checkpoint,
    hub: str,
    token_file: str | None = None,
    wheelhouse: Path | None = None,
    parallel: int = 4,
) -> Generator[FunctionCommand, None, None]:
    """Have every locked file of a checkpoint under the weights root, verified.

    + checkpoint: the plan's checkpoint, with its files from the lock
    + hub: address of the model hub
    + token_file: file on the host that holds the hub's token
    + wheelhouse: folder of the controlling machine; what lies in its `weights` is sent, the rest asked of the hub
    + parallel: how many files at a time
    """
    job = _job(checkpoint, hub, token_file, parallel)
    if host.get_fact(WeightsComplete, job=json.dumps({"folder": job["folder"], "files": job["files"]})):
        host.noop(f"weights of {checkpoint.repo} are complete")
        return
    yield step(_fetch, job, wheelhouse)


def _job(checkpoint: Checkpoint, hub: str, token_file: str | None, parallel: int) -> dict[str, Any]:
    assert checkpoint.revision is not None
    return {
        "hub": hub,
        "repo": checkpoint.repo,
        "revision": checkpoint.revision,
        "files": [file.model_dump() for file in checkpoint.files],
        "folder": layout.weights_folder(checkpoint.repo, checkpoint.revision),
        "parallel": parallel,
        "token_file": token_file,
    }


def _fetch(host: Any, job: dict[str, Any], wheelhouse: Path | None) -> None:
    """Runs the download under systemd and checks what it left."""
    name = f"{job['repo']}-{job['revision'][:12]}".replace("/", "-").replace(".", "-")
    path = f"{layout.WEIGHTS}/.jobs/{name}.json"
    folder = "/".join(job["folder"].split("/")[:-1])
    make = 'install -d -m 755 -o "$1" -g "$1" "$2" "$(dirname "$3")" "$3"'
    remote.script(host, make, layout.WORKER_USER, f"{layout.WEIGHTS}/.jobs", folder)
    remote.write_file(host, path, json.dumps(job))
    program, unit = f"{layout.PROGRAMS}/fetch_weights.py", f"rigup-weights-{name}"
    if wheelhouse and not remote.ask(host, "systemctl", "is-active", "--quiet", unit).ok:
        send_weights(host, job, wheelhouse)
    jobs.run(host, jobs.Job(unit, "weights", ("python3", program, path), (folder,), "bytes"))
    check = remote.ask(host, "python3", program, "--check", path)
    if not check.ok:
        raise HostFailed(f"{host.name}: weights of {job['repo']}: {_why(check.last_line)}", "run rigup apply again")


def _why(said: str) -> str:
    """What the check said, in words: a download that a reboot has ended leaves no error behind."""
    try:
        files = [*json.loads(said)["missing"], *json.loads(said)["bad"]]
    except (ValueError, KeyError, TypeError):
        return said
    return f"the download was cut short, as by a reboot: {', '.join(files)} not complete"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
