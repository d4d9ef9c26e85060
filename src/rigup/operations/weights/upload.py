"""Sends files of a checkpoint from a folder of the controlling machine, for hosts without access to a hub."""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import count
from rigup.facts.verified_files import VerifiedFiles
from rigup.host import Host
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.plan import Checkpoint
from rigup.units import bytes_text

CHUNK = 32 * 2**20
"""The maximum that an interrupted transfer loses."""
APPEND_SECONDS = 600

HASHING_SECONDS = 3600

# Prints how much of each file exists. Arguments after the folder: path, size and sha256 of each. A file in the folder
# counts if its hash is right; otherwise the part of its replacement counts.
_SIZES = """
folder="$1"; shift
while [ "$#" -gt 0 ]; do
  path="$1"; size="$2"; right="$3  -"; shift 3; part="$folder.incoming/parts/$path.part"
  if [ "$(stat -c %s "$folder.incoming/verified/$path" 2>/dev/null)" = "$size" ]; then echo "$size"; continue; fi
  if [ "$(stat -L -c %s "$folder/$path" 2>/dev/null)" = "$size" ]; then
    if [ "$(sha256sum < "$folder/$path")" = "$right" ]; then echo "$size"; continue; fi
  fi
  there="$(stat -c %s "$part" 2>/dev/null || echo 0)"
  if [ "$there" -gt "$size" ]; then rm -f "$part"; there=0; fi
  echo "$there"
done
"""
_PLACE = 'mkdir -p "$(dirname "$1")"; touch "$1"'
# Appends only at the expected size: if the connection broke within a chunk, the next run continues there.
_APPEND = """
[ "$(stat -c %s "$1")" = "$2" ] || { echo "something else has written to $1" >&2; exit 1; }
cat >> "$1"
"""
# A chunk arrives in a folder owned by root; root opens it there, and the worker writes it to its own folder.
_HAND_OVER = 'chunk="$1"; shift; trap \'rm -f "$chunk"\' EXIT; "$@" < "$chunk"'


def offered(job: dict[str, Any], wheelhouse: Path) -> list[dict[str, Any]]:
    """The files of a job that the wheelhouse has completely."""
    source = _source(job, wheelhouse)
    return [file for file in job["files"] if _size(source / file["path"]) == file["size"]]


def offered_bytes(checkpoint: Checkpoint, wheelhouse: Path) -> int:
    """Bytes of a checkpoint's files that the wheelhouse has completely: the others come from the hub."""
    files = [file.model_dump() for file in checkpoint.files]
    job = {"repo": checkpoint.repo, "revision": checkpoint.revision, "files": files}
    return sum(file["size"] for file in offered(job, wheelhouse)) if checkpoint.revision else 0


def send_heads(host: Host, job: dict[str, Any], wheelhouse: Path) -> None:
    """Sends the beginnings of the files of a job that the wheelhouse has, to its folder. Raises HostFailed."""
    from rigup.programs.weights.fetch_heads import head_bytes

    for place, file in enumerate(job["files"]):
        if file not in offered(job, wheelhouse):
            continue
        target = f"{job['folder']}/{file['path']}"
        remote.script(host, '"$@"', *_as_worker(_PLACE, target), doing=f"making {target}")
        with (_source(job, wheelhouse) / file["path"]).open("rb") as content:
            _append(host, target, 0, content.read(head_bytes(file["size"], place)), file["path"])


def send_weights(host: Host, job: dict[str, Any], wheelhouse: Path, paths: Collection[str] | None = None) -> None:
    """Sends the files that the host lacks and the wheelhouse has, as parts that the download continues.

    job: from `operations.weights`; running it verifies and publishes these files like any other, and downloads
    incomplete ones from the hub. paths: only these files. A partly sent file is continued; a damaged one in the folder
    is sent again from scratch.
    Raises HostFailed before the first byte if the files do not fit.
    """
    files = [file for file in offered(job, wheelhouse) if paths is None or file["path"] in paths]
    if not files:
        return
    folder = job["folder"]
    verified = host.get_fact(VerifiedFiles, folder=folder, paths=tuple(file["path"] for file in files))
    files = [file for file in files if verified.get(file["path"]) != (file["size"], file["sha256"])]
    report(Progress(host.name, "weights", text="checking existing files"))
    wanted = [str(file[key]) for file in files for key in ("path", "size", "sha256")]
    looking = f"checking weights of {job['repo']}"
    there = remote.script(host, '"$@"', *_as_worker(_SIZES, folder, *wanted), doing=looking, timeout=HASHING_SECONDS)
    lacking = [
        (file, size) for file, size in zip(files, _sizes(host, there, files), strict=True) if size < file["size"]
    ]
    _check_room(host, job["repo"], sum(file["size"] - size for file, size in lacking))
    done, total = 0, sum(file["size"] - size for file, size in lacking)
    for file, size in lacking:
        part = f"{folder}.incoming/parts/{file['path']}.part"
        remote.script(host, '"$@"', *_as_worker(_PLACE, part), doing=f"making {part}")
        with (_source(job, wheelhouse) / file["path"]).open("rb") as content:
            content.seek(size)
            while chunk := content.read(CHUNK):
                jobs.check_cancelled(f"{host.name}: cancelled while sending {file['path']}")
                report(Progress(host.name, "weights", done, total, "bytes", f"sending {file['path']}"))
                _append(host, part, size, chunk, file["path"])
                size += len(chunk)
                done += len(chunk)


def _sizes(host: Host, listing: str, files: list[dict[str, Any]]) -> list[int]:
    """How much of each file a host has. Raises HostFailed."""
    try:
        found = [count(size) for size in listing.split()]
    except ValueError as error:
        raise HostFailed(f"{host.name}: sizes of the weights: {error}") from None
    if len(found) != len(files):
        raise HostFailed(f"{host.name}: sizes of the weights: {len(found)} sizes for {len(files)} files")
    return found


def _append(host: Host, part: str, size: int, data: bytes, path: str) -> None:
    chunk = f"{layout.JOBS}/weights.chunk"
    hint = "free disk space on the host and run the same command again"
    remote.put_file(host, io.BytesIO(data), chunk, problem=f"could not send {path}", hint=hint)
    words = _as_worker(_APPEND, part, str(size))
    remote.script(host, _HAND_OVER, chunk, *words, doing=f"sending {path}", timeout=APPEND_SECONDS)


def _as_worker(script: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a few lines of sh as the worker, who owns these folders."""
    return remote.as_worker("sh", "-c", f"set -eu; umask 022\n{script}", "rigup", *arguments)


def _source(job: dict[str, Any], wheelhouse: Path) -> Path:
    folder: Path = wheelhouse / "weights" / job["repo"] / job["revision"]
    return folder


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _check_room(host: Host, repo: str, needed: int) -> None:
    free = remote.free_bytes(host, layout.WEIGHTS)
    if needed > free:
        raise HostFailed(
            f"{host.name}: weights of {repo}: disk full: {bytes_text(needed)} needed in {layout.WEIGHTS}, "
            f"{bytes_text(free)} free",
            "free disk space (rigup prune --weights), or mount a larger disk there",
        )
