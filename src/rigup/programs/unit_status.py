"""Reports a program's progress to systemd, if systemd runs it; rigup reads it from the unit's StatusText.

Part of the programs that report progress; on a host they share one folder.
"""

from __future__ import annotations

import contextlib
import os
import socket


def notify_status(status: str) -> None:
    """Sets the unit's status line."""
    notify(f"STATUS={status}")


def notify(message: str) -> None:
    """Sends a message as sd_notify(3) does; errors are ignored."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            link.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)
