"""Files from the controlling machine to a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rigup.errors import HostFailed
from rigup.host import Host, state_of
from rigup.operations.primitives import remote


@dataclass
class Uploads:
    """Folders of a host that were found to be root's in this run."""

    checked: set[str] = field(default_factory=set)


def send_file(host: Host, local: Path, path: str) -> None:
    """Uploads one file, which all may read; raises HostFailed when it did not arrive whole.

    Raises HostFailed, too, where anybody but root could change what lies in its folder: once asked, that stays so.
    """
    folder = path.rpartition("/")[0]
    checked = state_of(host, Uploads).checked
    if folder not in checked:
        remote.script(host, f'{remote.ROOTS_OWN}roots_own "$1"', folder, doing=f"sending {local.name}")
        checked.add(folder)
    arguments = {"_sudo": True} if getattr(host.data, "_sudo", None) else {}
    if not host.put_file(str(local), path, **arguments):
        raise HostFailed(f"{host.name}: could not send {local.name}", "check the free disk space on the host: df -h")
