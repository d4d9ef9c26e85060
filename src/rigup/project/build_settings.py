"""What an inventory says of who builds engines from source: each host for itself, or one machine for others."""

from __future__ import annotations

import hashlib
import json
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
    'name a host of the inventory (builder = "gpu1.lan"), several, or this machine (builder = "controller"); '
    "without the key each host builds for itself"
)
_REACHES = (
    *("ssh_hostname", "ssh_port", "ssh_user", "ssh_config_file"),
    *("ssh_known_hosts_file", "ssh_strict_host_key_checking", "ssh_paramiko_connect_kwargs"),
)
_NAME = r"[A-Za-z0-9@][A-Za-z0-9@._:-]{0,252}"


def read_builders(said: Any, root: Path, fleet: Mapping[str, Mapping[str, Any]]) -> tuple[Builder, ...]:
    """From `builder`. Records are of one machine, as SSH reaches it, so every checkout of a fleet finds them.

    root: relative paths begin there. fleet: the data of all hosts, by name.
    Raises InputError for what is not the name of a host, or names of several.
    """
    names = said if isinstance(said, list) and said else [said]
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise InputError(f"builder: {str(name)[:80]!r} is not the name of a host", _HINT)
        if names.count(name) > 1:
            raise InputError(f"builder: it names {name} more than once", "remove one of them")
    if CONTROLLER in names and len(names) > 1:
        raise InputError(f'builder: "{CONTROLLER}" beside hosts', f'write builder = "{CONTROLLER}", or hosts alone')
    records = cache_folder() / "builds"
    return tuple(
        Builder(name, records / (name if name == CONTROLLER else f"{_machine(name, fleet.get(name, {}), root)}/{name}"))
        for name in names
    )


def _machine(name: str, data: Mapping[str, Any], root: Path) -> str:
    """Identifies a machine by all that decides where SSH connects to and which host key it accepts."""
    reached = {key: str(data[key]) for key in _REACHES if data.get(key) is not None}
    paths = {key: str((root / Path(value).expanduser()).resolve()) for key, value in reached.items() if "file" in key}
    return hashlib.sha256(json.dumps([name, {**reached, **paths}], sort_keys=True).encode()).hexdigest()[:16]


def check_builders(project: Project, settings: Mapping[str, HostSettings]) -> None:
    """Raises InputError where a builder is neither a host of the inventory nor this machine, or may be both."""
    known = {host.name for host in project.everyone}
    for host in project.hosts:
        where = host.origins.get("builder", project.inventory)
        for builder in settings[host.name].builders:
            if builder.name == CONTROLLER and CONTROLLER in known:
                said = f'"{CONTROLLER}" is the controlling machine, and also a host of {project.inventory.name}'
                raise InputError(f"{where}: builder: {said}", "give that host another name")
            if builder.name not in (*known, CONTROLLER):
                raise InputError(f'{where}: builder: "{builder.name}" is not a host of {project.inventory.name}', _HINT)
