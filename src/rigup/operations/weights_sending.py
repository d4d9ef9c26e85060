"""Files of a checkpoint from a folder of the controlling machine, for hosts that reach no hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rigup import layout
from rigup.errors import HostFailed
from rigup.operations import remote
from rigup.operations.progress import Progress, report
from rigup.operations.uploads import send_file
from rigup.units import bytes_text

# The size of each file, where it is or grows; one line a path.
_SIZES = """
folder="$1"; shift
for path in "$@"; do
  stat -c %s "$folder/$path" 2>/dev/null || stat -c %s "$folder.incoming/verified/$path" 2>/dev/null ||
    stat -c %s "$folder.incoming/parts/$path.part" 2>/dev/null || echo 0
done
"""
_PLACE = 'mkdir -p "$(dirname "$3")"; : > "$3"; chown -R "$1:$1" "$2"'


def send_weights(host: Any, job: dict[str, Any], wheelhouse: Path) -> None:
    """Sends what the host lacks of a job's files and the wheelhouse has to where the download lets them grow.

    job: as `operations.weights` makes it; running it hashes and names these files like any other, and asks the hub for
    those that are not whole. Raises HostFailed where they do not fit, before the first byte.
    """
    source = wheelhouse / "weights" / job["repo"] / job["revision"]
    offered = [file for file in job["files"] if _size(source / file["path"]) == file["size"]]
    if not offered:
        return
    folder = job["folder"]
    there = remote.script(host, _SIZES, folder, *(file["path"] for file in offered)).split()
    lacking = [file for file, size in zip(offered, there, strict=True) if int(size) != file["size"]]
    _check_room(host, job["repo"], sum(file["size"] for file in lacking))
    for file in lacking:
        report(Progress(host.name, "weights", text=f"sending {file['path']}, {bytes_text(file['size'])}"))
        part = f"{folder}.incoming/parts/{file['path']}.part"
        remote.script(host, _PLACE, layout.WORKER_USER, f"{folder}.incoming", part)
        send_file(host, source / file["path"], part)


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
