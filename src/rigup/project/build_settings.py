"""What an inventory says of who builds engines from source: each host for itself, or one machine for others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cache import cache_folder
from rigup.errors import InputError
from rigup.settings import CONTROLLER, Builder, HostSettings

if TYPE_CHECKING:
    from rigup.project.inventory import Project

_HINT = (
    'name a host of the inventory (builder = "gpu1.lan") or the controlling machine (builder = "controller"); '
    "without the key each host builds for itself"
)
_NAME = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@._:-]{0,252}")


def read_builder(data: Mapping[str, Any], root: Path) -> Builder | None:
    """From a host's data; records are of the fleet at `root` alone, as another fleet's hosts may have equal names.

    Raises InputError for what is not the name of a host.
    """
    said = data.get("builder")
    if said is None:
        return None
    if not isinstance(said, str) or not _NAME.fullmatch(said):
        raise InputError(f"builder: {str(said)[:80]!r} is not the name of a host", _HINT)
    records = cache_folder() / "builds"
    if said == CONTROLLER:
        return Builder(said, records / said)
    fleet = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return Builder(said, records / fleet / said)


def check_builders(project: Project, settings: Mapping[str, HostSettings]) -> None:
    """Raises InputError where a builder is neither a host of the inventory nor this machine, or may be both."""
    known = {host.name for host in project.everyone}
    for host in project.hosts:
        builder = settings[host.name].builder
        where = host.origins.get("builder", project.inventory)
        if builder and builder.name == CONTROLLER and CONTROLLER in known:
            said = f'"{CONTROLLER}" is the controlling machine, and also a host of {project.inventory.name}'
            raise InputError(f"{where}: builder: {said}", "give that host another name")
        if builder and builder.name not in (*known, CONTROLLER):
            raise InputError(f'{where}: builder: "{builder.name}" is not a host of {project.inventory.name}', _HINT)
