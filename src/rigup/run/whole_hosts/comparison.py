"""What differs between two hosts: hardware, system, driver, builds, services and what the inventory says. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rigup.facts.probe import Probe
from rigup.operations.service.history import options_of
from rigup.systemd.release import GPUS_KEY, GROUP_KEY

Part = Literal["hardware", "system", "driver", "files", "services", "settings"]
PARTS = get_args(Part)
# that differ between hosts that are alike in all that matters
_OF_THE_HOST = (GPUS_KEY, GROUP_KEY)


@dataclass(frozen=True)
class Difference:
    """One value of two hosts; "" where a host has none."""

    part: Part
    what: str
    first: str
    second: str

    def as_json(self, names: tuple[str, str]) -> dict[str, Any]:
        """In plain values, by the names of the hosts."""
        return {
            "part": self.part,
            "what": self.what,
            "values": {names[0]: self.first or None, names[1]: self.second or None},
        }


def compare(probes: tuple[Probe, Probe], data: tuple[Mapping[str, Any], Mapping[str, Any]]) -> list[Difference]:
    """What differs. data: what the inventory says of each host."""
    described = [dict(_described(*pair)) for pair in zip(probes, data, strict=True)]
    keys = dict.fromkeys((*described[0], *described[1]))
    found = [Difference(*key, *(values.get(key, "") for values in described)) for key in keys]
    return sorted((each for each in found if each.first != each.second), key=lambda each: PARTS.index(each.part))


def _described(probe: Probe, data: Mapping[str, Any]) -> Iterator[tuple[tuple[Part, str], str]]:
    yield ("hardware", "GPUs"), _counted(f"{gpu.name} {gpu.memory_total_mib or '?'} MiB" for gpu in probe.gpus)
    links = (gpu.pcie for gpu in probe.gpus)
    yield ("hardware", "PCIe"), _counted(f"{link.most_generation or '?'}.0 x{link.most_width or '?'}" for link in links)
    limits = (f"{gpu.power.limit_w:g} W" for gpu in probe.gpus if gpu.power.limit_w is not None)
    yield ("hardware", "power limits"), _counted(limits)
    yield ("hardware", "NVLink pairs"), str(sum(bool(pair.nvlink) for pair in probe.gpu_pairs) or "")
    yield ("hardware", "processors"), str(probe.cpus)
    yield ("hardware", "memory"), f"{probe.memory_kib / 2**20:.0f} GiB {probe.host_memory}".strip()
    yield ("hardware", "architecture"), probe.architecture
    yield ("hardware", "virtualisation"), probe.virtualisation
    yield ("system", "system"), probe.os_name or probe.os
    yield ("system", "kernel"), probe.kernel
    yield ("system", "Secure Boot"), probe.secure_boot
    yield ("system", "packages on hold"), ", ".join(sorted(probe.held))
    yield ("system", "unattended upgrades"), "on" if probe.unattended_upgrades.enabled else "off"
    yield ("driver", "driver"), probe.nvidia.loaded
    yield ("driver", "installed"), probe.nvidia.installed
    for name, version in probe.nvidia.packages.items():
        yield ("driver", name), version
    for name in probe.builds:
        yield ("files", f"build {name}"), "there"
    for name in probe.weights:
        yield ("files", f"weights {name}"), "there"
    for service in probe.current:
        yield from _service(probe, service)
    for path, value in _flat(data):
        yield ("settings", path), value


def _service(probe: Probe, service: str) -> Iterator[tuple[tuple[Part, str], str]]:
    yield ("services", f"{service}: state"), "stopped" if probe.rests(service) else probe.active(service)
    if service in probe.damaged:
        yield ("services", f"{service}: release"), "damaged"
    for key, value in probe.releases.get(service, {}).items():
        if key == "command" and isinstance(value, list):
            for option, said in options_of([str(word) for word in value]).items():
                yield ("services", f"{service}: {option or 'program'}"), said or "given"
        elif key not in _OF_THE_HOST:
            for path, said in _flat({key: value}):
                yield ("services", f"{service}: {path}"), said


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Values by path: tables are entered. How the host is reached does not count."""
    for key, value in values.items():
        if not before and str(key).startswith(("ssh_", "_")):
            continue
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        elif value is not None:
            yield f"{before}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _counted(values: Iterator[str]) -> str:
    return ", ".join(f"{number}x {value}" for value, number in sorted(Counter(values).items()))
