"""From the lines that a probe prints ("key value ...") to a Probe. What is not understood is passed over. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rigup.facts.host import BuiltFor, Disk, Listener, NumaNode, Probe, UnattendedUpgrades, UnitState
from rigup.facts.nvidia_parsing import NvidiaLines

_TEXT = {
    "os": "os",
    "os_name": "os_name",
    "arch": "architecture",
    "kernel": "kernel",
    "hostname": "hostname",
    "boot_id": "boot_id",
    "init": "init",
    "secure_boot": "secure_boot",
}
_NUMBERS = ("clock", "cpus", "memory_kib")
_LISTS = {"build": "builds", "weights": "weights", "kernel_installed": "kernels", "headers": "headers"}
_UNIT_FIELDS = {
    "ActiveState": "active",
    "SubState": "sub",
    "ActiveEnterTimestamp": "since",
    "DropInPaths": "overrides",
}
_FABRIC_MANAGER = "nvidia-fabricmanager"
_SECURE_BOOT = {"1": "on", "0": "off", "": "off"}


@dataclass
class _Found:
    """What has been read so far."""

    values: dict[str, Any] = field(default_factory=dict)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    unconfigured: list[str] = field(default_factory=list)
    apt: dict[str, list[str]] = field(default_factory=dict)
    nvidia: NvidiaLines = field(default_factory=NvidiaLines)
    systemd: dict[str, str] = field(default_factory=dict)


def parse(lines: list[str]) -> Probe:
    """The probe's lines as a Probe. Lines it does not know (a chatty login shell) are passed over."""
    found = _Found()
    for line in lines:
        key, _, rest = line.partition(" ")
        try:
            _take(found, key, rest.strip())
        except (ValueError, IndexError, KeyError, SyntaxError):
            continue
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in found.values.items()
    }
    for kernels in ("kernels", "headers"):
        values[kernels] = _by_version(values.get(kernels, ()))
    nvidia = {name: version for name, version in found.packages.items() if re.search("nvidia|cuda|cublas|nvlsm", name)}
    return Probe(
        **values,
        units={name: UnitState(**unit) for name, unit in found.units.items()},
        held=tuple(sorted(found.held)),
        unattended_upgrades=_unattended_upgrades(found),
        nvidia=found.nvidia.driver(nvidia, tuple(sorted(found.unconfigured))),
        pci_gpus=tuple(found.nvidia.pci_gpus),
        gpus=found.nvidia.gpus(values.get("memory_kib", 0)),
        gpu_pairs=tuple(found.nvidia.pairs),
    )


def _take(found: _Found, key: str, rest: str) -> None:
    if key == "secure_boot":
        found.values[key] = _SECURE_BOOT.get(rest, rest)
    elif key in _TEXT:
        found.values[_TEXT[key]] = rest
    elif key in _NUMBERS:
        found.values[key] = int(rest)
    elif key in _LISTS:
        found.values.setdefault(_LISTS[key], []).append(rest)
    elif key in _READERS:
        _READERS[key](found, rest)
    else:
        found.nvidia.take(key, rest)


def _disk(found: _Found, rest: str) -> None:
    folder, writable, size, free, mount = rest.split(None, 4)
    found.values.setdefault("disks", []).append(
        Disk(folder, writable == "yes", int(free) * 1024, int(size) * 1024, mount)
    )


def _numa(found: _Found, rest: str) -> None:
    node, memory, *cpus = rest.split()
    found.values.setdefault("numa_nodes", []).append(NumaNode(int(node), "".join(cpus), int(memory)))


def _port(found: _Found, rest: str) -> None:
    port, address, owner = (*rest.split(None, 2), "")[:3]
    unit, _, program = owner.partition("|")
    found.values.setdefault("listeners", []).append(Listener(int(port), address.strip("[]"), unit.strip(), program))


def _incoming(found: _Found, rest: str) -> None:
    folder, kib = rest.rsplit(None, 1)
    found.values.setdefault("incoming", {})[folder] = int(kib) * 1024


def _built_for(found: _Found, rest: str) -> None:
    name, _, text = rest.partition(" ")
    made = json.loads(text)
    found.values.setdefault("built_for", {})[name] = BuiltFor(made["cuda"], tuple(made["compute_capabilities"]))


def _service(found: _Found, rest: str) -> None:
    name, release = rest.split()
    found.values.setdefault("current", {})[name] = release


def _release(found: _Found, rest: str) -> None:
    name, _, text = rest.partition(" ")
    found.values.setdefault("releases", {})[name] = json.loads(text)


def _systemd(found: _Found, rest: str) -> None:
    """A line of `systemctl show`; an empty one ends a unit."""
    if rest:
        key, _, value = rest.partition("=")
        found.systemd[key] = value
        return
    values, found.systemd = found.systemd, {}
    name = values.get("Id", "").removesuffix(".service")
    if name == _FABRIC_MANAGER:
        found.nvidia.fabric = values
    elif name.startswith("rigup-"):
        state: dict[str, Any] = {_UNIT_FIELDS[key]: value for key, value in values.items() if key in _UNIT_FIELDS}
        found.units[name.removeprefix("rigup-")] = state | {"restarts": int(values.get("NRestarts") or 0)}


def _package(found: _Found, rest: str) -> None:
    """dpkg's three letters of state (wanted, is, error), name and version."""
    state, name, version = rest.split("|")
    if state.startswith("h"):
        found.held.append(name)
    if state[1:2] == "i":
        found.packages[name] = version
    elif state[1:2] not in ("n", "c"):
        found.unconfigured.append(name)


def _apt(found: _Found, rest: str) -> None:
    """One line of `apt-config dump`: KEY "value"; an entry of a list has a key that ends in "::"."""
    key, _, value = rest.partition(" ")
    text = value.strip().rstrip(";").strip('"')
    if text:
        found.apt.setdefault(key.removesuffix("::"), []).append(text)


def _unattended_upgrades(found: _Found) -> UnattendedUpgrades:
    often = found.apt.get("APT::Periodic::Unattended-Upgrade", ["0"])[-1]
    return UnattendedUpgrades(
        installed="unattended-upgrades" in found.packages,
        enabled="unattended-upgrades" in found.packages and often not in ("0", "false", "no"),
        blacklist=tuple(found.apt.get("Unattended-Upgrade::Package-Blacklist", ())),
    )


def _by_version(releases: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(releases, key=lambda text: [int(part) for part in re.findall(r"\d+", text)]))


_READERS: dict[str, Callable[[_Found, str], None]] = {
    "disk": _disk,
    "numa": _numa,
    "port": _port,
    "incoming": _incoming,
    "built_for": _built_for,
    "service": _service,
    "release": _release,
    "systemd": _systemd,
    "package": _package,
    "apt": _apt,
}
