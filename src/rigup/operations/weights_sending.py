"""Files of a checkpoint from a folder of the controlling machine, for hosts that reach no hub."""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rigup import layout
from rigup.errors import HostFailed
from rigup.operations import jobs, remote
from rigup.operations.progress import Progress, report
from rigup.operations.weights import VerifiedFiles
from rigup.units import bytes_text

CHUNK = 32 * 2**20
"""What a cut transfer loses at most."""
APPEND_SECONDS = 600

HASHING_SECONDS = 3600

# How much of each file is there; its arguments after the folder: path, size and sha256 of each. One that lies in the
# folder counts if it is right, else what has come for its replacement.
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
_PLACE = 'mkdir -p "$(dirname "$3")"; rm -f "$3.chunk"; touch "$3"; chown -R "$1:$1" "$2"'
# Only onto what it continues: a chunk that went there half before the line was cut is then continued by the next run.
_APPEND = """
[ "$(stat -c %s "$1")" = "$2" ] || { echo "something else has written to $1" >&2; exit 1; }
cat "$1.chunk" >> "$1"; rm -f "$1.chunk"
"""


def offered(job: dict[str, Any], wheelhouse: Path) -> list[dict[str, Any]]:
    """Those of a job's files that the wheelhouse has, whole."""
    source = _source(job, wheelhouse)
    return [file for file in job["files"] if _size(source / file["path"]) == file["size"]]


def send_weights(host: Any, job: dict[str, Any], wheelhouse: Path, paths: Collection[str] | None = None) -> None:
    """Sends what the host lacks of a job's files and the wheelhouse has to where the download lets them grow.

    job: as `operations.weights` makes it; running it hashes and names these files like any other, and asks the hub for
    those that are not whole. paths: of these files only. A file that was sent in part is continued; one that lies in
    the folder and is damaged comes anew.
    Raises HostFailed where they do not fit, before the first byte.
    """
    files = [file for file in offered(job, wheelhouse) if paths is None or file["path"] in paths]
    if not files:
        return
    folder = job["folder"]
    verified = host.get_fact(VerifiedFiles, folder=folder, paths=tuple(file["path"] for file in files))
    files = [file for file in files if verified.get(file["path"]) != (file["size"], file["sha256"])]
    report(Progress(host.name, "weights", text="looking at what is there"))
    wanted = [str(file[key]) for file in files for key in ("path", "size", "sha256")]
    looking = f"looking for weights of {job['repo']}"
    there = remote.script(host, _SIZES, folder, *wanted, doing=looking, timeout=HASHING_SECONDS).split()
    lacking = [(file, int(size)) for file, size in zip(files, there, strict=True) if int(size) < file["size"]]
    _check_room(host, job["repo"], sum(file["size"] - size for file, size in lacking))
    done, total = 0, sum(file["size"] - size for file, size in lacking)
    for file, size in lacking:
        part = f"{folder}.incoming/parts/{file['path']}.part"
        remote.script(host, _PLACE, layout.WORKER_USER, f"{folder}.incoming", part, doing=f"making {part}")
        with (_source(job, wheelhouse) / file["path"]).open("rb") as content:
            content.seek(size)
            while chunk := content.read(CHUNK):
                if jobs.cancelled():
                    raise jobs.Cancelled(f"{host.name}: cancelled while sending {file['path']}")
                report(Progress(host.name, "weights", done, total, "bytes", f"sending {file['path']}"))
                _append(host, part, size, chunk, file["path"])
                size += len(chunk)
                done += len(chunk)


def _append(host: Any, part: str, size: int, chunk: bytes, path: str) -> None:
    arguments = {"_sudo": True} if getattr(host.data, "_sudo", None) else {}
    if not host.put_file(io.BytesIO(chunk), f"{part}.chunk", **arguments):
        raise HostFailed(f"{host.name}: could not send {path}", "is the disk of the host full?")
    remote.script(host, _APPEND, part, str(size), doing=f"sending {path}", timeout=APPEND_SECONDS)


def _source(job: dict[str, Any], wheelhouse: Path) -> Path:
    folder: Path = wheelhouse / "weights" / job["repo"] / job["revision"]
    return folder


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _check_room(host: Any, repo: str, needed: int) -> None:
    free = int(remote.tell(host, "df", "--output=avail", "-B1", layout.WEIGHTS).split()[-1])
    if needed > free:
        raise HostFailed(
            f"{host.name}: weights of {repo}: disk full: {bytes_text(needed)} are to be sent to {layout.WEIGHTS}, "
            f"{bytes_text(free)} are free",
            "make room (rigup prune --weights), or mount a larger disk there",
        )
