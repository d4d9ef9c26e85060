"""Sends files from the controlling machine to a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rigup.errors import HostFailed
from rigup.host import Host, state_of
from rigup.operations.primitives import remote


@dataclass
class Uploads:
    """Folders of a host that were found to be writable by root only, in this run."""

    checked: set[str] = field(default_factory=set)


def send_file(host: Host, local: Path, path: str) -> None:
    """Uploads one file, readable by all; raises HostFailed if it did not arrive completely.

    Raises HostFailed if another user could change the target folder; each folder is checked once.
    """
    folder = path.rpartition("/")[0]
    checked = state_of(host, Uploads).checked
    if folder not in checked:
        remote.script(host, f'{remote.ROOTS_OWN}roots_own "$1"', folder, doing=f"sending {local.name}")
        checked.add(folder)
    arguments = {"_sudo": True} if getattr(host.data, "_sudo", None) else {}
    if not host.put_file(str(local), path, **arguments):
        raise HostFailed(f"{host.name}: could not send {local.name}", "check the free disk space on the host: df -h")
