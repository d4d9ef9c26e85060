"""Reads a fleet: an inventory file, the group_data beside it and the lock. In pyinfra's format, without pyinfra.

The files are the user's Python and are executed, as pyinfra does; what goes wrong in one is reported by file and line.
"""

from __future__ import annotations

import fnmatch
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rigup.errors import InputError
from rigup.toolkit import toolkit_root as toolkit_root

INVENTORIES = "inventories"
GROUP_DATA = "group_data"
LOCK = "rigup.lock"


@dataclass(frozen=True)
class HostEntry:
    """One host of the fleet.

    group: the group that gives it its rig. data: everything that the inventory and group_data say, merged.
    origins: for each key of `data`, the file that it came from, as messages name it.
    """

    name: str
    group: str
    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def data_path(self) -> str:
        """The file that the rig was read from, for messages."""
        return self.origins["rig"]


@dataclass(frozen=True)
class Project:
    """A fleet folder with one of its inventories. `root` holds group_data/ and rigup.lock.

    hosts: those that --limit leaves. whole: those of the inventory, () where nothing was left out.
    """

    root: Path
    inventory: Path
    hosts: tuple[HostEntry, ...]
    whole: tuple[HostEntry, ...] = ()

    @property
    def everyone(self) -> tuple[HostEntry, ...]:
        """Every host of the inventory, whatever --limit says."""
        return self.whole or self.hosts

    @property
    def lock_path(self) -> Path:
        """The fleet's own lock; where it has none, that of the toolkit."""
        own = self.root / LOCK
        return own if own.exists() or not (toolkit_root() / LOCK).exists() else toolkit_root() / LOCK


def load_project(path: str | None, limit: str | None = None) -> Project:
    """Reads the inventory at `path` (default: the only file in inventories/), keeping the hosts that `limit` names.

    limit: a group, a host, or a pattern of either; several with commas.
    Raises InputError naming the file and the line, group or host that cannot be used.
    """
    inventory = _find_inventory(path)
    root = _fleet_root(inventory)
    groups = {
        name: value
        for name, value in _execute(inventory).items()
        if not name.startswith("_") and _is_group(name, value, inventory)
    }
    if not any(_hosts_of(value) for value in groups.values()):
        raise InputError(f"{_shown(inventory)}: no hosts in it", 'write a group, e.g. quad_3090 = ["gpu1.lan"]')
    hosts = _merge(inventory, groups, _load_group_data(root, inventory))
    return Project(root, inventory, _limited(hosts, groups, limit), hosts)


def read_group_data(path: Path) -> dict[str, Any]:
    """What one group_data file says; raises InputError with file and line where it cannot be executed."""
    return _execute(path)


def _find_inventory(path: str | None) -> Path:
    folder = Path(INVENTORIES)
    there = sorted(folder.glob("*.py"))
    listed = ", ".join(str(p) for p in there) or "none"
    if path is None:
        if len(there) == 1:
            return there[0]
        if not there:
            raise InputError(f"{folder}/: no inventory there", "name one: rigup plan INVENTORY")
        raise InputError(f"{folder}/: more than one inventory ({listed})", "name one: rigup plan INVENTORY")
    found = Path(path)
    if not found.is_file():
        raise InputError(f"{path}: no such inventory", f"inventories here: {listed}")
    return found


def _fleet_root(inventory: Path) -> Path:
    folder = inventory.resolve().parent
    return folder.parent if folder.name == INVENTORIES and not (folder / GROUP_DATA).is_dir() else folder


def _shown(path: Path) -> str:
    """A path as the user would write it: relative to the working directory where it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _execute(path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__file__": str(path)}
    try:
        exec(compile(path.read_text(), str(path), "exec"), names)
    except SyntaxError as error:
        raise InputError(f"{_shown(path)}:{error.lineno}: {error.msg}", "it is Python: mend the syntax") from None
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f"{_shown(path)}:{lines[-1]}" if lines else _shown(path)
        raise InputError(
            f"{where}: {type(error).__name__}: {error}", "the file was executed and failed there"
        ) from None
    return {key: value for key, value in names.items() if not key.startswith("__")}


def _is_group(name: str, value: object, path: Path) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    hosts = _hosts_of(value)
    for index, host in enumerate(hosts):
        if not isinstance(host, str) and not (
            isinstance(host, tuple) and len(host) == 2 and isinstance(host[0], str) and isinstance(host[1], dict)
        ):
            raise InputError(
                f"{_shown(path)}: {name}[{index}]: {host!r} is not a host",
                'a host is "name" or ("name", {"ssh_port": 2222})',
            )
    return True


def _has_data(group: Any) -> bool:
    """Whether a group is a pair of its hosts and the data that the inventory itself says of them."""
    return isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], list) and isinstance(group[1], dict)


def _hosts_of(group: Any) -> list[Any]:
    return list(group[0] if _has_data(group) else group)


def _load_group_data(root: Path, inventory: Path) -> dict[str, tuple[dict[str, Any], str]]:
    folders = dict.fromkeys((root / GROUP_DATA, inventory.resolve().parent / GROUP_DATA))
    return {
        path.stem: (_execute(path), _shown(path))
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.glob("*.py"))
    }


def _merge(
    inventory: Path, groups: dict[str, Any], group_data: dict[str, tuple[dict[str, Any], str]]
) -> tuple[HostEntry, ...]:
    """Gives each host its data: the host's own over its groups' (the last wins) over the file's group over `all`."""
    own: dict[str, dict[str, Any]] = {}
    member: dict[str, list[str]] = {}
    for group, value in groups.items():
        for host in _hosts_of(value):
            name, data = (host, {}) if isinstance(host, str) else host
            own.setdefault(name, {}).update(data)
            member.setdefault(name, []).append(group)
    return tuple(_entry(inventory, groups, group_data, name, own[name], member[name]) for name in own)


def _entry(
    inventory: Path,
    groups: dict[str, Any],
    group_data: dict[str, tuple[dict[str, Any], str]],
    name: str,
    own: dict[str, Any],
    members: list[str],
) -> HostEntry:
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    rig_group = members[-1]
    named = [group for group in members if group != "all"]
    for group in dict.fromkeys(["all", inventory.stem, *named]):
        data, path = group_data.get(group, ({}, ""))
        inline = groups[group][1] if _has_data(groups.get(group)) and group in members else {}
        for found, origin in ((data, path), (inline, _shown(inventory))):
            merged.update(found)
            origins.update(dict.fromkeys(found, origin))
            if "rig" in found:
                rig_group = group
    merged.update(own)
    origins.update(dict.fromkeys(own, _shown(inventory)))
    if "rig" not in merged:
        raise InputError(
            f'{_shown(inventory)}: group "{rig_group}" has no rig',
            f'write {GROUP_DATA}/{rig_group}.py with rig = {{"gpus": "4x RTX 3090"}} and services = {{...}}',
        )
    return HostEntry(name, rig_group, merged, origins)


def _limited(hosts: tuple[HostEntry, ...], groups: dict[str, Any], limit: str | None) -> tuple[HostEntry, ...]:
    if limit is None:
        return hosts
    kept: set[str] = set()
    for pattern in limit.split(","):
        in_groups = {
            h if isinstance(h, str) else h[0]
            for g in groups
            if fnmatch.fnmatch(g, pattern)
            for h in _hosts_of(groups[g])
        }
        found = {host.name for host in hosts if host.name in in_groups or fnmatch.fnmatch(host.name, pattern)}
        if not found:
            raise InputError(f'--limit: "{pattern}" is neither a group nor a host', f"groups: {', '.join(groups)}")
        kept |= found
    return tuple(host for host in hosts if host.name in kept)
