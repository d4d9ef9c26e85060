"""Files from the controlling machine to a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rigup.errors import HostFailed


def send_file(host: Any, local: Path, path: str) -> None:
    """Uploads one file; raises HostFailed when it did not arrive whole."""
    arguments = {"_sudo": True} if getattr(host.data, "_sudo", None) else {}
    if not host.put_file(str(local), path, **arguments):
        raise HostFailed(f"{host.name}: could not send {local.name}", "is the disk of the host full?")
