"""Room for many booted machines: each of them watches files with systemd's, dbus' and logind's instances of inotify.

All of them belong to this machine's root, whose limit is 128 on most kernels; one short of it a machine does not boot.
"""

from __future__ import annotations

from pathlib import Path

from rigup.errors import MissingTool
from rigup.lab.base import Log

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
A_MACHINE = 10  # 7 on Debian 12, and what is installed there may want some
OTHERS = 100


def make_room(machines: int, log: Log) -> None:
    """Raises the limit until the next boot of this machine if it is too low for so many machines, and reports it.

    Raises MissingTool where it cannot be raised from here.
    """
    wanted, limit = machines * A_MACHINE + OTHERS, int(LIMIT.read_text())
    if limit < wanted:
        try:
            LIMIT.write_text(f"{wanted}\n")
        except OSError as error:
            message = f"{machines} machines require fs.inotify.max_user_instances = {wanted}, but it is {limit}"
            hint = f"run sysctl -w fs.inotify.max_user_instances={wanted} on the machine that runs the lab"
            raise MissingTool(f"{message}: {error.strerror}", hint) from None
        log(f"raised fs.inotify.max_user_instances from {limit} to {wanted} for {machines} machines")
