"""Removes what rigup has installed on a host earlier and nobody wants any more: units, then their files."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import TextFiles

# $1 units to stop, then paths to remove. A unit is stopped before a file that limits it is removed.
_REMOVE = """
units=$1; shift
for unit in $units; do systemctl --quiet disable --now "$unit" 2>/dev/null || true; done
for unit in $units; do
  case "$(systemctl is-active "$unit" || true)" in active|activating) echo "$unit is still running" >&2; exit 1;; esac
done
rm -rf -- "$@"
systemctl daemon-reload
"""


class InstalledPart(NamedTuple):
    """A part of what rigup installs. traces: files of rigup's; where none exists, it has not installed the part.

    units: to stop and disable. paths: to remove, in this order. A unit's file comes last: while it exists, an
    interrupted removal is repeated. doing: for messages. absent: what is said of a host without it.
    """

    traces: tuple[str, ...]
    units: tuple[str, ...]
    paths: tuple[str, ...]
    doing: str
    absent: str
    stop_seconds: float = 60


@operation()
def removed_part(part: InstalledPart) -> Generator[FunctionCommand, None, None]:
    """Ensures that a part that rigup installed is not there. Packages stay.

    + part: its units and paths
    """
    if not host.get_fact(TextFiles, paths=part.traces):
        host.noop(part.absent)
        return
    yield step(remove_part, part)


def remove_part(host: Host, part: InstalledPart) -> None:
    """Stops and disables the units, then removes the paths. Raises HostFailed if a unit does not stop."""
    remote.script(host, _REMOVE, " ".join(part.units), *part.paths, doing=part.doing, timeout=part.stop_seconds)
