"""Reads a fleet: an inventory file with the group_data beside it. In pyinfra's format, without pyinfra."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rigup.errors import InputError
from rigup.plain_values import check_bounds, quoted
from rigup.project.group_data import GROUP_DATA, execute, load_group_data, shown
from rigup.project.ssh_settings import check_host_name, check_ssh_settings
from rigup.regular_files import files_in, is_absent, sha256_of
from rigup.toolkit import toolkit_root as toolkit_root

INVENTORIES = "inventories"
LOCK = "rigup.lock"
# what rigup reads of a host's data; the rest is the user's own and may be anything
SETTINGS = {
    *("rig", "services", "driver", "monitoring", "gateway", "builder", "hub", "hub_token_file", "ollama_registry"),
    *("nvidia_repository", "nvidia_key_fingerprint"),
    *("container_toolkit_repository", "container_toolkit_key_fingerprint", "image_mirrors", "package_index"),
    *("python_mirror", "wheelhouse", "weights_sharing", "weights_mb_per_s", "lan", "lan_address"),
}
LONGEST_GROUP = 100
GROUP_HINT = f"use letters, digits and underscores, at most {LONGEST_GROUP}"


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
    def services(self) -> dict[str, Mapping[str, Any]]:
        """What the inventory says of each service, as far as it is a table."""
        found = self.data.get("services")
        tables = found.items() if isinstance(found, Mapping) else ()
        return {str(name): said if isinstance(said, Mapping) else {} for name, said in tables}

    @property
    def data_path(self) -> str:
        """The file that the rig was read from, for messages."""
        return self.origins["rig"]


class Project(NamedTuple):
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
    def data_by_host(self) -> dict[str, dict[str, Any]]:
        """The data of the hosts, by name."""
        return {host.name: host.data for host in self.hosts}

    @property
    def lock_path(self) -> Path:
        """The fleet's own lock; where it has none, that of the toolkit."""
        own = self.root / LOCK
        return toolkit_root() / LOCK if is_absent(own) and not is_absent(toolkit_root() / LOCK) else own

    @property
    def lock_digest(self) -> str:
        """The sha256 of the lock, in hex; "" without one."""
        return sha256_of(self.lock_path) if self.lock_path.is_file() else ""


class _InventoryGroup(NamedTuple):
    """A group of an inventory: its hosts, each with the data that is said of it alone, and the data of all of them."""

    hosts: list[tuple[str, dict[str, Any]]]
    data: dict[str, Any]


def load_project(path: str | None, limit: str | None = None) -> Project:
    """Reads the inventory at `path` (default: the only file in inventories/), keeping the hosts that `limit` names.

    limit: a group, a host, or a pattern of either; several with commas.
    Raises InputError naming the file and the line, group or host that cannot be used.
    """
    inventory = _find_inventory(path)
    root = _fleet_root(inventory)
    groups = {
        name: _group(name, value, inventory)
        for name, value in execute(inventory).items()
        if not name.startswith("_") and isinstance(value, (list, tuple))
    }
    if not any(group.hosts for group in groups.values()):
        raise InputError(f"{shown(inventory)}: it has no hosts", 'write a group, e.g. quad_3090 = ["gpu1.lan"]')
    hosts = _merge(inventory, groups, load_group_data(root, inventory))
    return Project(root, inventory, _limited(hosts, groups, limit), hosts)


def _find_inventory(path: str | None) -> Path:
    folder = Path(INVENTORIES)
    there = files_in(folder, ".py")
    listed = ", ".join(str(p) for p in there) or "none"
    if path is None:
        if len(there) == 1:
            return there[0]
        if not there:
            raise InputError(f"{folder}/: no inventory found", "describe the first host: rigup init USER@HOST")
        raise InputError(f"{folder}/: more than one inventory ({listed})", "name one: rigup plan INVENTORY")
    found = Path(path)
    if is_absent(found):
        raise InputError(f"{path}: inventory does not exist", f"choose from: {listed}")
    return found


def _fleet_root(inventory: Path) -> Path:
    folder = inventory.resolve().parent
    return folder.parent if folder.name == INVENTORIES and not (folder / GROUP_DATA).is_dir() else folder


def _group(name: str, value: list[Any] | tuple[Any, ...], path: Path) -> _InventoryGroup:
    if not name.isidentifier() or len(name) > LONGEST_GROUP:  # of globals()[...] = [...]
        raise InputError(f"{shown(path)}: {quoted(name)} cannot name a group", GROUP_HINT)
    hosts: Sequence[Any] = value
    data: dict[str, Any] = {}
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], list) and isinstance(value[1], dict):
        hosts, data = value
    found = []
    for index, host in enumerate(hosts):
        pair = (host, {}) if isinstance(host, str) else host
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and _is_data(pair[1])):
            raise InputError(
                f"{shown(path)}: {name}[{index}]: {quoted(host)} is not a host",
                'write a host as "name" or ("name", {"ssh_port": 2222})',
            )
        check_host_name(pair[0], f"{shown(path)}: {name}[{index}]")
        found.append(pair)
    return _InventoryGroup(found, data)


def _is_data(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _merge(
    inventory: Path, groups: dict[str, _InventoryGroup], group_data: dict[str, tuple[dict[str, Any], str]]
) -> tuple[HostEntry, ...]:
    """Gives each host its data: the host's own over its groups' (the last wins) over the file's group over `all`."""
    own: dict[str, dict[str, Any]] = {}
    member: dict[str, list[str]] = {}
    for label, group in groups.items():
        for name, data in group.hosts:
            own.setdefault(name, {}).update(data)
            member.setdefault(name, []).append(label)
    return tuple(_entry(inventory, groups, group_data, name, own[name], member[name]) for name in own)


def _entry(
    inventory: Path,
    groups: dict[str, _InventoryGroup],
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
        inline = groups[group].data if group in members else {}
        for found, origin in ((data, path), (inline, shown(inventory))):
            merged.update(found)
            origins.update(dict.fromkeys(found, origin))
            if "rig" in found:
                rig_group = group
    merged.update(own)
    origins.update(dict.fromkeys(own, shown(inventory)))
    if "gateway" in merged:  # a host that is a gateway and nothing else need not say so twice
        origins = {"rig": origins["gateway"], "services": origins["gateway"], **origins}
        merged = {"rig": {"gpus": []}, "services": {}, **merged}
    if "rig" not in merged:
        raise InputError(
            f'{shown(inventory)}: group "{rig_group}" has no rig',
            f'write {GROUP_DATA}/{rig_group}.py with rig = {{"gpus": "4x RTX 3090"}} and services = {{...}}',
        )
    for key in SETTINGS & merged.keys():
        check_bounds(merged[key], f"{origins[key]}: {key}")
    check_ssh_settings(merged, lambda key: f"{origins[key]}: {name}: ")
    return HostEntry(name, rig_group, merged, origins)


def _limited(
    hosts: tuple[HostEntry, ...], groups: dict[str, _InventoryGroup], limit: str | None
) -> tuple[HostEntry, ...]:
    if limit is None:
        return hosts
    kept: set[str] = set()
    for pattern in limit.split(","):
        matching = [group for label, group in groups.items() if fnmatch.fnmatch(label, pattern)]
        in_groups = {name for group in matching for name, _ in group.hosts}
        found = {host.name for host in hosts if host.name in in_groups or fnmatch.fnmatch(host.name, pattern)}
        if not found:
            raise InputError(
                f'--limit: "{pattern}" is neither a group nor a host',
                f"name a host, or one of the groups: {', '.join(groups)}",
            )
        kept |= found
    return tuple(host for host in hosts if host.name in kept)
