"""Allows many booted machines: in each one systemd, dbus and logind need instances of inotify.

All of these count for this machine's root, whose limit is 128 on most kernels; beyond it a machine does not boot.
"""

from __future__ import annotations

from pathlib import Path

from rigup.errors import MissingTool
from rigup.lab.base import Log

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
A_MACHINE = 10  # 7 on Debian 12, and installed programs may need more
OTHERS = 100


def make_room(machines: int, log: Log) -> None:
    """Raises the limit until the next boot of this machine if it is too low for these machines, and reports it.

    Raises MissingTool if the limit cannot be raised.
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
