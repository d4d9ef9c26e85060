"""The control group of one machine: all its processes and no others, so that a power cut is exact."""

from __future__ import annotations

from pathlib import Path

from rigup.errors import MissingTool
from rigup.lab.process import wait_for

PARENT = "rigup-lab"


def hierarchy() -> Path:
    """The mount point of cgroup v2, alone or beside v1; raises MissingTool if it is not mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(point)
    raise MissingTool("the lab requires cgroup v2, which is not mounted", "mount -t cgroup2 cgroup2 /sys/fs/cgroup")


class Cgroup:
    """The control group of machine `index` of lab `number`."""

    def __init__(self, number: int, index: int) -> None:
        self.path = hierarchy() / PARENT / str(number) / str(index)

    def make(self) -> None:
        """Creates it. Another machine of the lab may be removing the lab's empty group at the same time."""
        wait_for(lambda: _made(self.path), 2)

    def enter(self) -> None:
        """Moves the calling process into it."""
        (self.path / "cgroup.procs").write_text("0")

    @property
    def populated(self) -> bool:
        """Whether it contains any process."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def kill(self) -> None:
        """Kills every process in it at once, and no other. Needs Linux 5.14."""
        if self.populated:
            (self.path / "cgroup.kill").write_text("1")
            wait_for(lambda: not self.populated, 10)

    def remove(self) -> None:
        """Removes it and its subgroups, and the lab's own group with the last machine."""
        for folder in sorted(self.path.glob("**/"), key=lambda folder: -len(folder.parts)):
            wait_for(lambda folder=folder: _removed(folder), 2)  # type: ignore[misc]
        for folder in (self.path.parent, self.path.parent.parent):
            _removed(folder)


def _made(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        return False
    return True


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
