"""Checkpoints whose files lie on the host already: read for the lock, hashed once on apply, never copied or changed.

Services and the job that hashes see each file, read-only, in the folder of the receipt, and nothing else of the folder
in which it lies. So they can read it however closed that folder is, but only if the file may be read by everybody.
"""

import base64
import binascii
import json
import re
from collections.abc import Generator, Sequence
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed, InputError, RigupError
from rigup.facts.bounds import MOST_CHARACTERS, Unreadable, count, json_of
from rigup.facts.host_output import HostOutput, Line, checked
from rigup.facts.verified_files import VerifiedFiles
from rigup.host import Host
from rigup.lock import LARGEST_FILE
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.steps import step
from rigup.operations.weights.checkpoint import QUIET_SECONDS, checkpoint_key
from rigup.plan import Checkpoint
from rigup.printable import one_line
from rigup.programs import program_file
from rigup.programs.weights.weights_folder import RECEIPT
from rigup.service import HOST_PATH

PROGRAM = "hash_weights.py"
# What the system keeps for itself, and rigup's own: a link from a folder of weights into one of these is not followed.
CLOSED = (
    "/boot",
    "/dev",
    "/etc",
    "/proc",
    "/run",
    "/sys",
    "/var/log",
    "/opt/rigup",
    "/var/cache/rigup",
    "/var/lib/rigup",
)
MOST_FILES = 10_000
# What a lock holds (rigup.lock.LockedFile); other files of a folder are passed over.
FILE_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_+.-]{0,200}")
# A slow disk hashes this many bytes per second; hashing that takes longer is taken to hang.
LEAST_HASHED_PER_SECOND = 30_000_000

_LIST = """
[ -d "$1" ] || { echo none; exit 0; }
cd -- "$1" && find -L . -maxdepth 1 -type f -printf 'file %f\\n' | head -n 10001
"""
# Paths come over standard input, because a command line has room for some hundred.
_STATE = """
while IFS= read -r file; do
  printf '%s|%s\\n' "$(LC_ALL=C stat -L -c '%F|%s' -- "$file" || true)" "$(readlink -e -- "$file" || true)"
done 2>/dev/null
"""
_PART = 'dd if="$1" iflag=skip_bytes,count_bytes skip="$2" count="$3" bs=1M status=none | base64'


def file_names(host: Host, folder: str) -> tuple[str, ...]:
    """The files in a folder of a host, links to files included. Raises InputError for a folder that does not exist."""
    lines = remote.script(host, _LIST, folder, doing=f"listing {folder}").splitlines()
    if lines == ["none"]:
        raise InputError(f"{host.name}: {folder}: does not exist", "copy the checkpoint there, or correct the path")
    if len(lines) > MOST_FILES:
        raise InputError(f"{host.name}: {folder}: more than {MOST_FILES:,} files", "name the folder of one checkpoint")
    names = (line.removeprefix("file ") for line in lines if line.startswith("file "))
    return tuple(sorted(name for name in names if FILE_NAME.fullmatch(name)))


def file_sizes(host: Host, paths: Sequence[str]) -> dict[str, int]:
    """The size of each file of a host. Raises InputError for one that does not exist, or lies where it must not."""
    asked = "".join(f"{path}\n" for path in paths)
    lines = remote.script(host, _STATE, doing="looking at the weights", stdin=asked).splitlines()
    if len(lines) != len(paths):
        raise HostFailed(f"{host.name}: {paths[0]}: its files could not be listed")
    return {path: _size(host.name, path, *line.split("|", 2)) for path, line in zip(paths, lines, strict=True)}


def _size(name: str, path: str, kind: str, size: str = "", real: str = "") -> int:
    real = one_line(real[:300])
    if not kind or not real:
        raise InputError(f"{name}: {path}: does not exist", "copy the checkpoint there, or correct the path")
    if any(real == closed or real.startswith(f"{closed}/") for closed in CLOSED):
        raise InputError(
            f"{name}: {path}: is at {real}, where rigup does not accept weights", f"move it out of {', '.join(CLOSED)}"
        )
    if kind not in ("regular file", "regular empty file"):
        raise InputError(f"{name}: {path}: not a regular file", "name a .gguf file, or a folder with config.json")
    try:
        return count(size, LARGEST_FILE)
    except ValueError as error:
        raise HostFailed(f"{name}: {path}: its size {error}") from None


def read_part(host: Host, path: str, start: int, count: int) -> bytes:
    """`count` bytes of a file of a host from `start`. Raises HostFailed where it has fewer, or cannot be read."""
    output = remote.run(host, "sh", "-c", _PART, "rigup", path, str(start), str(count), timeout=300)
    try:
        content = base64.b64decode(output.stdout, validate=False)
    except (binascii.Error, ValueError):
        content = b""
    if not output.ok or len(content) != count:
        raise HostFailed(f"{host.name}: {path}: could not be read: {output.last_line[:200]}")
    return content


def sha256(host: Host, path: str, size: int) -> str:
    """The sha256 of a file of a host. Raises HostFailed."""
    seconds = 60 + size / LEAST_HASHED_PER_SECOND
    words = remote.check_output(host, "sha256sum", "-b", "--", path, timeout=seconds).split()
    if not words or not re.fullmatch(r"[0-9a-f]{64}", words[0]):
        raise HostFailed(f"{host.name}: {path}: sha256sum did not print a hash")
    return words[0]


class _NotedFile(HostOutput):
    path: Line


class _Receipt(HostOutput):
    files: list[_NotedFile]


def changed_files(host: Host, folder: str, place: str) -> tuple[str, ...]:
    """The files of an earlier release, lying in `place`, that are not as the receipt in `folder` says, or not there.

    Raises Unreadable for a receipt or a path that is none.
    """
    if not HOST_PATH.fullmatch(place):
        raise Unreadable(f"{folder}: {place[:60]!a} is not the path of a folder")
    text = remote.read_workers_file(host, f"{folder}/{RECEIPT}", MOST_CHARACTERS)
    if text is None:
        return (place,)
    paths = tuple(file.path for file in checked(_Receipt, json_of(text, RECEIPT), RECEIPT).files)
    paths = tuple(path for path in paths if HOST_PATH.fullmatch(f"/{path}"))
    verified = host.get_fact(VerifiedFiles, folder=folder, paths=paths, place=place) if paths else {}
    return tuple(f"{place.rstrip('/')}/{path}" for path in paths if path not in verified)


@operation()
def files_on_host(checkpoint: Checkpoint) -> Generator[FunctionCommand, None, None]:
    """Ensures that every locked file of a checkpoint is where the inventory says, and verified.

    + checkpoint: the plan's checkpoint, with its files from the lock
    """
    assert checkpoint.revision is not None and checkpoint.host_folder is not None
    folder = layout.weights_folder(checkpoint.repo, checkpoint.revision)
    wanted = {file.path: (file.size, file.sha256) for file in checkpoint.files}
    verified = host.get_fact(VerifiedFiles, folder=folder, paths=tuple(wanted), place=checkpoint.host_folder)
    if all(verified.get(path) == file for path, file in wanted.items()):
        host.noop(f"{checkpoint.location} matches the lock")
        return
    yield step(_hash, checkpoint, folder)


def _hash(host: Host, checkpoint: Checkpoint, folder: str) -> None:
    """Hashes the files as a service will see them: as the worker, in a job that sees them read-only."""
    job = hash_job(checkpoint, folder)
    try:
        sizes = file_sizes(host, list(checkpoint.shown_files.values()))
        for file, size in zip(checkpoint.files, sizes.values(), strict=True):
            if size != file.size:
                where = f"{checkpoint.host_folder}/{file.path}"
                raise HostFailed(f"{host.name}: {where}: {size:,} bytes, but {file.size:,} are locked")
        _prepare(host, folder, tuple(checkpoint.shown_files))
        unit = layout.job_unit("weights", f"{checkpoint.repo}-{checkpoint_key(checkpoint)}")
        path = layout.job_file(unit)
        remote.write_file(host, path, json.dumps(job))
        command = ("python3", f"{layout.PROGRAMS}/{PROGRAM}", path)
        jobs.run(
            host,
            jobs.Job(
                unit,
                "weights",
                command,
                (folder,),
                "bytes",
                private_network=True,
                quiet_seconds=QUIET_SECONDS,
                readable=checkpoint.shown_files,
            ),
        )
    except RigupError as error:
        if isinstance(error, jobs.Cancelled):
            raise
        accept = f"or, if it changed on every host, take it: rigup lock --upgrade {checkpoint.repo}"
        hint = f"put the locked file there; {accept}" if "locked" in error.message else error.hint
        raise HostFailed(error.message, hint) from None


def hash_job(checkpoint: Checkpoint, folder: str) -> dict[str, Any]:
    """The job of `hash_weights.py`, and of a check."""
    files = [file.model_dump() for file in checkpoint.files]
    identity = {"repo": checkpoint.repo, "revision": checkpoint.revision}
    return {"folder": folder, "place": checkpoint.host_folder, "files": files, **identity}


def _prepare(host: Host, folder: str, points: tuple[str, ...]) -> None:
    """Makes the worker's folder for the receipt, and in it an empty file for each one to be shown there."""
    above = folder.rpartition("/")[0]
    remote.make_folders(host, layout.JOBS, layout.PROGRAMS, above.rpartition("/")[0])
    remote.make_folders(host, above, owner=layout.WORKER_USER)
    remote.check_output(host, *remote.as_worker("mkdir", "-p", "--", folder))
    remote.check_output(host, *remote.as_worker("touch", "--", *points))
    remote.write_file(host, f"{layout.PROGRAMS}/{PROGRAM}", program_file(PROGRAM).read_text())
