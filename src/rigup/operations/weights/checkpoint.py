"""A checkpoint on a host: downloaded by a resumable job, hashed before it is published, identified by its receipt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.verified_files import VerifiedFiles
from rigup.host import Host, state_of
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.plan import Checkpoint
from rigup.programs import program_file
from rigup.service import blobs_address

if TYPE_CHECKING:
    from rigup.operations.weights.sharing import SharedDownload

QUIET_SECONDS = 180.0
"""The download cuts a transfer that stalls for 30 s, waits at most 30 s before the next try, and reports the progress
of longer pauses and of hashing. So its status changes several times in this period while it works."""
PARALLEL_FILES = 4
BESIDE_FILES = 2**26
"""Bytes of other files that a download writes: states, receipts."""
SMALL = 2**26
"""Bytes: tokenizers are smaller, and shards of weights larger or named as such."""
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
_PROGRAM = ("python3", f"{layout.PROGRAMS}/fetch_weights.py")
_HEADS = "fetch_heads.py"


@operation()
def checkpoint_files(
    checkpoint: Checkpoint,
    hub: str,
    token_file: str | None = None,
    wheelhouse: Path | None = None,
    hub_bytes_per_second: int = 0,
    lan_bytes_per_second: int = 0,
) -> Generator[FunctionCommand, None, None]:
    """Ensures that every locked file of a checkpoint is under the weights root, verified.

    + checkpoint: the plan's checkpoint, with its files from the lock
    + hub: address of the model hub, or of Ollama's registry for a checkpoint from there
    + token_file: file on the host with the hub's token
    + wheelhouse: folder on the controlling machine; files in its `weights` are sent, the rest comes from the hub
    + hub_bytes_per_second, lan_bytes_per_second: limits of downloads from the hub and from other hosts; 0: none

    If the host has a part in a shared download (`Sharing.parts`), it also downloads from other hosts.
    """
    job = _job(checkpoint, hub, token_file)
    job |= {"hub_bytes_per_second": hub_bytes_per_second, "lan_bytes_per_second": lan_bytes_per_second}
    wanted = {file["path"]: (file["size"], file["sha256"]) for file in job["files"]}
    verified = host.get_fact(VerifiedFiles, folder=job["folder"], paths=tuple(wanted))
    if all(verified.get(path) == file for path, file in wanted.items()):
        host.noop(f"weights of {checkpoint.repo} are complete")
        return
    yield step(_fetch, job, checkpoint_key(checkpoint), wheelhouse)


def step_name(checkpoint: Checkpoint) -> str:
    """The name of the step that downloads a checkpoint."""
    return f"weights {checkpoint.repo} {checkpoint.quant}"


def checkpoint_key(checkpoint: Checkpoint) -> str:
    """A name for a checkpoint by its files; hosts with the same key want the same files."""
    files = [[file.path, file.size, file.sha256] for file in checkpoint.files]
    return hashlib.sha256(json.dumps([checkpoint.repo, checkpoint.revision, files]).encode()).hexdigest()[:16]


def _job(checkpoint: Checkpoint, hub: str, token_file: str | None) -> dict[str, Any]:
    assert checkpoint.revision is not None
    return {
        "hub": hub,
        "repo": checkpoint.repo,
        "revision": checkpoint.revision,
        "files": [file.model_dump() for file in checkpoint.files],
        "folder": layout.weights_folder(checkpoint.repo, checkpoint.revision),
        "parallel": PARALLEL_FILES,
        "token_file": token_file,
        **({"blobs": blobs_address(hub, checkpoint.location)} if checkpoint.location else {}),
    }


@dataclass(frozen=True)
class FileSource:
    """Where a checkpoint's files come from; as for `checkpoint_files`."""

    hub: str
    token_file: str | None = None
    wheelhouse: Path | None = None


def fetch_small_files(host: Host, checkpoint: Checkpoint, folder: str, source: FileSource) -> None:
    """Downloads what is not weights into a folder of its own, which the worker may write beside. Raises HostFailed."""
    job = _job(checkpoint, source.hub, source.token_file)
    small = [file for file in job["files"] if file["size"] <= SMALL and not file["path"].endswith(_WEIGHTS)]
    job |= {"folder": folder, "files": small}
    unit = layout.job_unit("weights", f"small-{checkpoint_key(checkpoint)}")
    path = layout.job_file(unit)
    remote.make_folders(host, layout.JOBS)
    remote.write_file(host, path, json.dumps(job))
    if source.wheelhouse:
        _send(host, job, source.wheelhouse, None)
    jobs.run(host, _download(unit, path, job, (folder.rpartition("/")[0],)))


def fetch_heads(host: Host, checkpoint: Checkpoint, folder: str, source: FileSource) -> None:
    """Downloads the beginnings of GGUF files, each as long as its file but for a hole, into a folder of its own.

    They are not verified: only what an unprivileged program reads of them is used, to judge a plan. Raises HostFailed.
    """
    job = _job(checkpoint, source.hub, source.token_file) | {"folder": folder}
    unit = layout.job_unit("weights", f"heads-{checkpoint_key(checkpoint)}")
    path = layout.job_file(unit)
    remote.make_folders(host, layout.JOBS)
    remote.send_file(host, program_file(_HEADS), f"{layout.PROGRAMS}/{_HEADS}")
    remote.write_file(host, path, json.dumps(job))
    if source.wheelhouse:
        from rigup.operations.weights.upload import send_heads

        send_heads(host, job, source.wheelhouse)
    command = ("python3", f"{layout.PROGRAMS}/{_HEADS}", path)
    writable = (folder.rpartition("/")[0],)
    jobs.run(host, replace(_download(unit, path, job, writable), command=command))


def _download(unit: str, path: str, job: dict[str, Any], writable: tuple[str, ...]) -> jobs.Job:
    """The download that a job's file describes. path: of that file."""
    from rigup.programs.weights.weights_folder import EXIT_GONE, EXIT_HASH  # few runs download weights

    largest = max((file["size"] for file in job["files"]), default=0) + BESIDE_FILES
    return jobs.Job(
        unit,
        "weights",
        (*_PROGRAM, path),
        writable,
        "bytes",
        quiet_seconds=QUIET_SECONDS,
        computes=False,
        largest_file=largest,
        hints=dict.fromkeys((EXIT_GONE, EXIT_HASH), f"take what is there now: rigup lock --upgrade {job['repo']}"),
    )


def _fetch(host: Host, job: dict[str, Any], key: str, wheelhouse: Path | None) -> None:
    """Runs the download under systemd and checks the result. key: of the checkpoint."""
    # includes the files: an unfinished job for other files of the same revision is another job
    revision = f"{job['repo']}-{job['revision'][:12]}".replace("/", "-").replace(".", "-")
    unit = layout.job_unit("weights", f"{revision}-{key}")
    path, folder = layout.job_file(unit), job["folder"].rpartition("/")[0]
    remote.make_folders(host, layout.JOBS, folder.rpartition("/")[0])
    remote.make_folders(host, folder, owner=layout.WORKER_USER)  # its parent belongs to root, so it stays a folder
    part = _part(host, key)
    writable: tuple[str, ...] = (folder,)
    if part:
        from rigup.operations.weights import sharing

        job, writable = job | {"sharing": part.job}, (folder, sharing.FOLDER)
    work = _download(unit, path, job, writable)
    _stop_others(host, layout.job_unit("weights", f"{revision}-"), work)
    sent = wheelhouse is not None and not jobs.going(host, work)
    remote.write_file(host, path, json.dumps(job))
    if sent:
        _send(host, job, wheelhouse, part)
    if part:
        state_of(host, sharing.Sharing).jobs[key] = path
        part.arrived()
    try:
        jobs.run(host, work)
    except HostFailed:
        if not (part and sent):
            raise
        _send(host, job, wheelhouse, None)  # the other hosts did not provide the missing files
        jobs.run(host, work)
    check = remote.run(host, *remote.as_worker(*_PROGRAM, "--check", path))
    if not check.ok:
        raise HostFailed(f"{host.name}: weights of {job['repo']}: {_why(check.last_line)}", "run rigup apply again")


def _stop_others(host: Host, units: str, work: jobs.Job) -> None:
    """Stops an earlier run's job for other files of the revision: it would hold the folder until it has them all.

    units: prefix of the names of all jobs for the revision. Downloaded files stay for later runs.
    """
    words = ("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating")
    listed = remote.run(host, *words, f"{units}*").stdout
    others = {line.split()[0] for line in listed.splitlines() if line.strip()} - {f"{work.unit}.service"}
    if others:
        report(Progress(host.name, work.step, text="stopping a download of an earlier run"))
        remote.check_output(host, "systemctl", "stop", *sorted(others), timeout=jobs.STOP_SECONDS)


def _part(host: Host, key: str) -> SharedDownload | None:
    """The host's part in a shared download, with its server running; a host that cannot serve still downloads."""
    from rigup.operations.weights import sharing

    part = state_of(host, sharing.Sharing).parts.get(key)
    if part:
        sharing.serve_if_possible(host, part.server)
    return part


def _send(host: Host, job: dict[str, Any], wheelhouse: Path | None, part: SharedDownload | None) -> None:
    """Sends files of the wheelhouse: all, or this host's share if the hosts pass them on to one another."""
    from rigup.operations.weights.upload import offered, send_weights

    assert wheelhouse is not None
    share = None
    if part:
        from rigup.programs.weights.swarm_turns import owners

        mine = part.fetchers.index(part.server.member.name)
        files = [(file["path"], file["size"]) for file in offered(job, wheelhouse)]
        share = {path for path, owner in owners(files, part.fetchers).items() if owner == mine}
    send_weights(host, job, wheelhouse, share)


def _why(output: str) -> str:
    """The reason in the output of the check; a download ended by a reboot leaves no error."""
    try:
        files = ", ".join([*json.loads(output)["missing"], *json.loads(output)["bad"]])
    except (ValueError, KeyError, TypeError, RecursionError):
        return output
    return f"the download was interrupted, possibly by a reboot; incomplete: {files}"
