"""A checkpoint on a host: downloaded by a job that resumes, hashed before it gets its name, known by its receipt."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.operations import jobs, remote
from rigup.operations.progress import Progress, report
from rigup.operations.steps import step
from rigup.plan import Checkpoint

if TYPE_CHECKING:
    from rigup.operations.weights_sharing import Part

_MARK = "##rigup-files##"


class VerifiedFiles(FactBase[dict[str, tuple[int, str]]]):
    """Size and sha256 of these files of a folder, by path: of those that nothing has touched since they were verified.

    As `weights_folder.py` finds it, which a host needs ten times as long for.
    """

    @staticmethod
    def default() -> dict[str, tuple[int, str]]:
        return {}

    def command(self, folder: str, paths: tuple[str, ...]) -> str:
        stat = f"LC_ALL=C stat -L -c '%F|%s|%i|%.9Y|%n' -- {shlex.join(paths)}"
        look = f"cat .rigup-receipt.json; echo; echo '{_MARK}'; {stat}"
        return f"cd {shlex.quote(folder)} 2>/dev/null && {{ {look}; }} 2>/dev/null; true"

    def process(self, output: list[str]) -> dict[str, tuple[int, str]]:
        receipt, found = "", output
        if _MARK in output:
            receipt, found = "\n".join(output[: output.index(_MARK)]), output[output.index(_MARK) + 1 :]
        there = {}
        for kind, size, inode, mtime, path in (line.split("|", 4) for line in found if line.count("|") >= 4):
            if kind in ("regular file", "regular empty file"):
                there[path] = {"size": int(size), "inode": int(inode), "mtime_ns": int(mtime.replace(".", ""))}
        try:
            entries = json.loads(receipt)["files"]
            noted = {entry["path"]: (entry.pop("sha256"), entry) for entry in entries}
        except (ValueError, KeyError, TypeError):  # no receipt vouches for nothing
            return {}
        return {
            path: (is_now["size"], noted[path][0])
            for path, is_now in there.items()
            if path in noted and noted[path][1] == {"path": path, **is_now}
        }


@operation()
def checkpoint_files(
    checkpoint: Checkpoint,
    hub: str,
    token_file: str | None = None,
    wheelhouse: Path | None = None,
    parallel: int = 4,
    hub_bytes_per_second: int = 0,
    lan_bytes_per_second: int = 0,
) -> Generator[FunctionCommand, None, None]:
    """Have every locked file of a checkpoint under the weights root, verified.

    + checkpoint: the plan's checkpoint, with its files from the lock
    + hub: address of the model hub
    + token_file: file on the host that holds the hub's token
    + wheelhouse: folder of the controlling machine; what lies in its `weights` is sent, the rest asked of the hub
    + parallel: how many files at a time
    + hub_bytes_per_second, lan_bytes_per_second: the most that the host takes from the hub and from other hosts; 0: all

    Where `weights_sharing` has given the host a part in a shared download, other hosts are asked too.
    """
    job = _job(checkpoint, hub, token_file, parallel)
    job |= {"hub_bytes_per_second": hub_bytes_per_second, "lan_bytes_per_second": lan_bytes_per_second}
    wanted = {file["path"]: (file["size"], file["sha256"]) for file in job["files"]}
    verified = host.get_fact(VerifiedFiles, folder=job["folder"], paths=tuple(wanted))
    if all(verified.get(path) == file for path, file in wanted.items()):
        host.noop(f"weights of {checkpoint.repo} are complete")
        return
    yield step(_fetch, job, wheelhouse)


def step_name(checkpoint: Checkpoint) -> str:
    """How the step that gets a checkpoint is called."""
    return f"weights {checkpoint.repo} {checkpoint.quant}"


def checkpoint_key(checkpoint: Checkpoint) -> str:
    """Names a checkpoint by its files; hosts that want files of the same key want the same."""
    files = [[file.path, file.size, file.sha256] for file in checkpoint.files]
    return hashlib.sha256(json.dumps([checkpoint.repo, checkpoint.revision, files]).encode()).hexdigest()[:16]


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
        "key": checkpoint_key(checkpoint),
    }


def _fetch(host: Any, job: dict[str, Any], wheelhouse: Path | None) -> None:
    """Runs the download under systemd and checks what it left."""
    key, job = job["key"], {name: value for name, value in job.items() if name != "key"}
    # by its files too: a job that somebody left for others of the revision is not this one
    revision = f"{job['repo']}-{job['revision'][:12]}".replace("/", "-").replace(".", "-")
    path = f"{layout.WEIGHTS}/.jobs/{revision}-{key}.json"
    folder = "/".join(job["folder"].split("/")[:-1])
    make = 'install -d -m 755 -o "$1" -g "$1" "$2" "$(dirname "$3")" "$3"'
    remote.script(host, make, layout.WORKER_USER, f"{layout.WEIGHTS}/.jobs", folder, doing=f"making {folder}")
    part = _part(host, key)
    writable: tuple[str, ...] = (folder,)
    if part:
        from rigup.operations.weights_sharing import FOLDER

        job, writable = job | {"sharing": part.job}, (folder, FOLDER)
    program, unit = f"{layout.PROGRAMS}/fetch_weights.py", layout.job_unit("weights", f"{revision}-{key}")
    work = jobs.Job(unit, "weights", ("python3", program, path), writable, "bytes")
    _stop_others(host, layout.job_unit("weights", f"{revision}-"), work)
    sent = wheelhouse is not None and not jobs.going(host, work)
    remote.write_file(host, path, json.dumps(job))
    if sent:
        _send(host, job, wheelhouse, part)
    if part:
        part.arrived()
    try:
        jobs.run(host, work)
    except HostFailed:
        if not (part and sent):
            raise
        _send(host, job, wheelhouse, None)  # the others did not have, or did not give, what is missing
        jobs.run(host, work)
    check = remote.ask(host, "python3", program, "--check", path)
    if not check.ok:
        raise HostFailed(f"{host.name}: weights of {job['repo']}: {_why(check.last_line)}", "run rigup apply again")


def _stop_others(host: Any, units: str, work: jobs.Job) -> None:
    """Stops what an earlier run left to get other files of the revision: the folder would be its until it has them all.

    units: how the names of all that get files of the revision begin. What has come stays for whoever wants it.
    """
    words = ("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating")
    said = remote.ask(host, *words, f"{units}*").stdout
    others = {line.split()[0] for line in said.splitlines() if line.strip()} - {f"{work.unit}.service"}
    if others:
        report(Progress(host.name, work.step, text="stopping a download that an earlier run left"))
        remote.tell(host, "systemctl", "stop", *sorted(others), timeout=jobs.STOP_SECONDS)


def _part(host: Any, key: str) -> Part | None:
    """The host's part in a shared download, its server running; a host that cannot serve still takes."""
    if "rigup_sharing" not in host.connector_data:
        return None
    from rigup.operations import weights_sharing

    part = weights_sharing.part_of(host, key)
    if part:
        weights_sharing.serve_if_possible(host, part.server)
    return part


def _send(host: Any, job: dict[str, Any], wheelhouse: Path | None, part: Part | None) -> None:
    """Sends what the wheelhouse has: all of it, or a host's share where the hosts pass it on among themselves."""
    from rigup.operations.weights_sending import offered, send_weights

    assert wheelhouse is not None
    share = None
    if part:
        from rigup.programs.swarm_order import owners

        mine = part.fetchers.index(part.server.member.name)
        files = [(file["path"], file["size"]) for file in offered(job, wheelhouse)]
        share = {path for path, owner in owners(files, part.fetchers).items() if owner == mine}
    send_weights(host, job, wheelhouse, share)


def _why(said: str) -> str:
    """What the check said, in words: a download that a reboot has ended leaves no error behind."""
    try:
        files = [*json.loads(said)["missing"], *json.loads(said)["bad"]]
    except (ValueError, KeyError, TypeError):
        return said
    return f"the download was cut short, as by a reboot: {', '.join(files)} not complete"
