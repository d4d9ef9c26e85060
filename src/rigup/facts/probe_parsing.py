"""Parses the lines that a probe prints ("key value ...") into a Probe. Pure.

An unknown or malformed line is ignored, because a login shell may have printed it. A document in a line (a release, an
answer of NVML) comes from rigup's own program and must be valid.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from rigup import layout
from rigup.facts.bounds import LAST_SECOND, Unreadable, count, json_of, line, shown
from rigup.facts.host import BuiltFor, Disk, Listener, NumaNode, Probe, UnattendedUpgrades, UnitState
from rigup.facts.host_output import HostOutput, checked
from rigup.facts.manifest import read_manifest
from rigup.facts.memory_modules import MemoryModule, described, module_of
from rigup.facts.nvidia_parsing import NvidiaLines

_TEXT = ("os", "os_name", "os_like", "kernel", "hostname", "boot_id", "init", "virtualisation")
_LISTS = {
    "build": "builds",
    "weights": "weights",
    "kernel_installed": "kernels",
    "kernel_package": "kernel_packages",
    "headers": "headers",
    "unfinished": "unfinished",
    "stopped": "stopped",
}
_UNIT_FIELDS = {
    "ActiveState": "active",
    "SubState": "sub",
    "ActiveEnterTimestamp": "since",
    "DropInPaths": "overrides",
}
_FABRIC_MANAGER = "nvidia-fabricmanager"
_NVIDIA = re.compile("nvidia|cuda|cublas|nvlsm")
# "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>", "Ubuntu Kernel Team <…@lists.ubuntu.com>"
_DISTRIBUTION = re.compile(r"@([a-z0-9-]+\.)*(debian\.org|debian\.net|ubuntu\.com|canonical\.com)>", re.IGNORECASE)
_SECURE_BOOT = {"1": "on", "0": "off", "": "off"}
MOST_LINES = 100_000
_MOST_OF = {"disk": 100, "numa": 1000, "service": 1000, "release": 1000, "build": 10_000, "weights": 10_000}
_MOST_OF |= {
    "memory_module": 1000,
    "incoming": 10_000,
    "pci": 1000,
    "card": 1000,
    "kernel_installed": 1000,
    "headers": 1000,
    "kernel_module": 1000,
    "kernel_package": 1000,
    "unfinished": 10_000,
    "nvidia_device": 1000,
    "port": 20_000,
}
_MOST_KIB = 2**50
_NUMBERS = {"clock": LAST_SECOND, "cpus": 1_000_000, "memory_kib": _MOST_KIB}


class _BuildTargetOutput(HostOutput):
    cuda: Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){0,2}$")]
    compute_capabilities: list[Annotated[str, Field(pattern=r"^\d{1,3}\.\d{1,3}$")]]


@dataclass
class _Found:
    """What the parser has read so far."""

    values: dict[str, Any] = field(default_factory=dict)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    of_distribution: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    unconfigured: dict[str, str] = field(default_factory=dict)
    apt: dict[str, list[str]] = field(default_factory=dict)
    nvidia: NvidiaLines = field(default_factory=NvidiaLines)
    systemd: dict[str, str] = field(default_factory=dict)
    modules: list[MemoryModule] = field(default_factory=list)


def parse(lines: list[str]) -> Probe:
    """Parses the probe's lines. Raises Unreadable if there are too many, or if NVML cannot have printed one."""
    if len(lines) > MOST_LINES:
        raise Unreadable(f"the probe: more than {MOST_LINES:,} lines")
    found = _Found()
    counts: Counter[str] = Counter()
    for each in lines:
        key, _, rest = each.partition(" ")
        counts[key] += 1
        if counts[key] > (most := _MOST_OF.get(key, MOST_LINES)):
            raise Unreadable(f"the probe: more than {most:,} lines of {shown(key)}")
        try:
            _take(found, key, rest.strip())
        except Unreadable:
            raise
        except (ValueError, IndexError, KeyError, SyntaxError):
            continue
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in found.values.items()
    }
    for kernels in ("kernels", "headers"):
        values[kernels] = _by_version(values.get(kernels, ()))
    nvidia = {name: version for name, version in found.packages.items() if _NVIDIA.search(name)}
    return Probe(
        **values,
        host_memory=described(found.modules),
        units={name: UnitState(**unit) for name, unit in found.units.items()},
        held=tuple(sorted(found.held)),
        unattended_upgrades=_unattended_upgrades(found),
        nvidia=found.nvidia.driver(nvidia, found.unconfigured, tuple(sorted(found.of_distribution))),
        pci_gpus=tuple(found.nvidia.pci_gpus),
        gpus=found.nvidia.gpus(values.get("memory_kib", 0)),
        gpu_pairs=tuple(found.nvidia.pairs.values()),
    )


def _take(found: _Found, key: str, rest: str) -> None:
    if key == "release":
        _release(found, rest)
        return
    if key != "nvml":
        rest = line(rest)
    if key == "secure_boot":
        found.values[key] = _SECURE_BOOT.get(rest, rest)
    elif key == "arch":
        found.values["architecture"] = rest
    elif key in _TEXT:
        found.values[key] = rest
    elif key in _NUMBERS:
        found.values[key] = count(rest, _NUMBERS[key])
    elif key in _LISTS:
        found.values.setdefault(_LISTS[key], []).append(rest)
    elif key in _READERS:
        _READERS[key](found, rest)
    else:
        found.nvidia.take(key, rest)


def _disk(found: _Found, rest: str) -> None:
    folder, writable, size, free, mount = rest.split(None, 4)
    found.values.setdefault("disks", []).append(
        Disk(folder, writable == "yes", count(free, _MOST_KIB) * 1024, count(size, _MOST_KIB) * 1024, mount)
    )


def _numa(found: _Found, rest: str) -> None:
    node, memory, *cpus = rest.split()
    found.values.setdefault("numa_nodes", []).append(NumaNode(count(node), "".join(cpus), count(memory, _MOST_KIB)))


def _memory_module(found: _Found, rest: str) -> None:
    if (module := module_of(rest)) is not None:
        found.modules.append(module)


def _port(found: _Found, rest: str) -> None:
    port, address, owner = (*rest.split(None, 2), "")[:3]
    unit, _, program = owner.partition("|")
    found.values.setdefault("listeners", []).append(
        Listener(count(port, 65535), address.strip("[]"), unit.strip(), program)
    )


def _kept_wheels(found: _Found, rest: str) -> None:
    found.values["kept_wheels"] = rest == "yes"


def _incoming(found: _Found, rest: str) -> None:
    folder, kib = rest.rsplit(None, 1)
    found.values.setdefault("incoming", {})[folder] = count(kib, _MOST_KIB) * 1024


def _built_for(found: _Found, rest: str) -> None:
    name, _, text = rest.partition(" ")
    try:
        made = checked(_BuildTargetOutput, json_of(text, name), name)
    except Unreadable as error:  # treat it like a build that does not state this
        raise ValueError(str(error)) from None
    found.values.setdefault("built_for", {})[name] = BuiltFor(made.cuda, tuple(made.compute_capabilities))


def _built_by(found: _Found, rest: str) -> None:
    name, builder = rest.split()
    found.values.setdefault("built_by", {})[name] = builder


def _service(found: _Found, rest: str) -> None:
    name, release = rest.split()
    found.values.setdefault("current", {})[name] = release


def _release(found: _Found, rest: str) -> None:
    name, _, text = rest.partition(" ")
    name = line(name)
    path = f"{layout.service_folder(name)}/current/release.json"
    try:
        found.values.setdefault("releases", {})[name] = read_manifest(text, path)
    except Unreadable as error:
        found.values.setdefault("damaged", {})[name] = str(error)


def _systemd(found: _Found, rest: str) -> None:
    """Reads one line of `systemctl show`; an empty line ends a unit."""
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
        found.units[name.removeprefix("rigup-")] = state | {"restarts": _restarts(values.get("NRestarts", ""))}


def _restarts(text: str) -> int:
    try:
        return count(text)
    except ValueError:
        return 0


def _kernel_module(found: _Found, rest: str) -> None:
    release, version = rest.split()
    found.values.setdefault("kernel_modules", {})[release] = version


def _package(found: _Found, rest: str) -> None:
    """Reads dpkg's three state letters (wanted, actual, error), the name, the version and who built it."""
    state, name, version, maintainer = rest.split("|", 3)
    if state.startswith("h"):
        found.held.append(name)
    if state[1:2] == "i":
        found.packages[name] = version
    elif state[1:2] not in ("n", "c"):
        found.unconfigured[name] = version
    else:
        return
    if _NVIDIA.search(name) and _DISTRIBUTION.search(maintainer):
        found.of_distribution.append(name)


def _apt(found: _Found, rest: str) -> None:
    """Reads one line of `apt-config dump`: KEY "value"; the key of a list entry ends in "::"."""
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
    return tuple(sorted(releases, key=lambda text: [int(part) for part in re.findall(r"[0-9]{1,20}", text)]))


_READERS: dict[str, Callable[[_Found, str], None]] = {
    "disk": _disk,
    "numa": _numa,
    "memory_module": _memory_module,
    "port": _port,
    "incoming": _incoming,
    "kept_wheels": _kept_wheels,
    "built_for": _built_for,
    "built_by": _built_by,
    "service": _service,
    "systemd": _systemd,
    "kernel_module": _kernel_module,
    "package": _package,
    "apt": _apt,
}
