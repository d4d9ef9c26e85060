"""The probe's lines about GPUs, put together: from NVML, from the kernel's module, from the bus. Pure."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from rigup.facts.gpus import FabricManager, Gpu, GpuPair, Nvidia, PcieLink, PciGpu, PowerLimits

_DISPLAY, _BRIDGE = "0x03", "0x068"
_LIBRARY = "libnvidia-ml.so."


@dataclass
class NvidiaLines:
    """Takes lines one by one; what they come to is asked at the end."""

    loaded: str = ""
    flavour: str = ""
    installed: str = ""
    nouveau: bool = False
    pci_gpus: list[PciGpu] = field(default_factory=list)
    bridges: int = 0
    switches: int = 0
    cards: dict[str, tuple[str, str]] = field(default_factory=dict)
    fabric: dict[str, str] = field(default_factory=dict)
    error: str = ""
    system: dict[str, Any] = field(default_factory=dict)
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    pairs: list[GpuPair] = field(default_factory=list)

    def take(self, key: str, rest: str) -> None:
        """Takes one line; raises ValueError or KeyError for one that it cannot read."""
        if key == "driver":
            version = re.search(r" (\d+(?:\.\d+)+) ", f"{rest} ")
            self.loaded = version[1] if version else ""
            self.flavour = "open" if "Open Kernel Module" in rest else "proprietary"
        elif key == "library":
            self.installed = rest.removeprefix(_LIBRARY) if rest.startswith(_LIBRARY) else ""
        elif key == "nouveau":
            self.nouveau = True
        elif key == "pci":
            self._take_device(*rest.split())
        elif key == "nvswitch":
            self.switches += 1
        elif key == "card":
            bus, uuid, name = rest.split(None, 2)
            self.cards[_bus(bus)] = (uuid, name)
        elif key == "nvml":
            self._take_answer(ast.literal_eval(rest))

    def _take_device(self, bus: str, kind: str, device: str, node: str) -> None:
        if kind.startswith(_DISPLAY):
            self.pci_gpus.append(PciGpu(bus, "" if device == "unknown" else device, _node(int(node))))
        elif kind.startswith(_BRIDGE):
            self.bridges += 1

    def _take_answer(self, said: dict[str, Any]) -> None:
        if "gpu" in said:
            self.answers[int(said["gpu"])] = said
        elif "pair" in said:
            first, second = said["pair"]
            self.pairs.append(GpuPair(first, second, said["path"] or "", said["peer"], said["nvlink"]))
        elif "system" in said:
            self.system = said["system"]
        else:
            self.error = str(said["error"])

    def driver(self, packages: dict[str, str], unconfigured: tuple[str, ...]) -> Nvidia:
        """The driver; its packages are given, since they come from dpkg with all others."""
        managers = [version for name, version in packages.items() if name.startswith("nvidia-fabricmanager")]
        there = self.fabric.get("LoadState") == "loaded"
        return Nvidia(
            loaded=self.loaded,
            installed=self.installed,
            flavour=self.flavour if self.loaded else "",
            cuda=self.system.get("cuda") or "",
            error=self.error,
            packages=packages,
            unconfigured=unconfigured,
            nouveau=self.nouveau,
            nvswitches=self.switches or self.bridges,
            fabric_manager=FabricManager(
                version=next(iter(managers), ""),
                active=self.fabric.get("ActiveState", "") if there else "",
                enabled=self.fabric.get("UnitFileState", "") if there else "",
            ),
        )

    def gpus(self, memory_kib: int) -> tuple[Gpu, ...]:
        """What NVML says of each GPU; where NVML says nothing at all, names and UUIDs from the kernel's module."""
        nodes = {_bus(device.bus): device.numa_node for device in self.pci_gpus}
        if not self.answers:
            return tuple(
                Gpu(name, index=index, uuid=uuid, bus=bus, numa_node=nodes.get(bus))
                for index, (bus, (uuid, name)) in enumerate(sorted(self.cards.items()))
            )
        missing = iter(sorted(set(self.cards) - {_bus(said.get("bus") or "") for said in self.answers.values()}))
        gpus: list[Gpu] = []
        for index, said in sorted(self.answers.items()):
            if "error" in said:
                # NVML has no word for a lost card but its index; the module still knows which bus has gone quiet
                bus = next(missing, "")
                uuid, name = self.cards.get(bus, ("", ""))
                gpus.append(Gpu(name, index=index, uuid=uuid, bus=bus, error=said["error"], numa_node=nodes.get(bus)))
            else:
                gpus.append(_gpu(said, nodes, memory_kib))
        return tuple(gpus)


def _gpu(said: dict[str, Any], nodes: dict[str, int | None], memory_kib: int) -> Gpu:
    bus, total = _bus(said["bus"] or ""), said["memory_total_mib"]
    return Gpu(
        name=said["name"],
        memory_used_mib=said["memory_used_mib"],
        memory_total_mib=memory_kib // 1024 or None if total is None else total,
        temperature_c=said["temperature_c"],
        index=said["gpu"],
        uuid=said["uuid"],
        bus=bus,
        memory_of_host=total is None,
        memory_reserved_mib=said["memory_reserved_mib"],
        compute_capability=said["compute_capability"] or "",
        pcie=PcieLink(
            said["pcie_generation"], said["pcie_width"], said["pcie_generation_most"], said["pcie_width_most"]
        ),
        power=PowerLimits(said["power_limit_w"], said["power_default_w"], said["power_least_w"], said["power_most_w"]),
        persistence=said["persistence"],
        ecc=said["ecc"],
        mig=said["mig"],
        throttled=tuple(said["throttled"] or ()),
        nvlinks=said["nvlinks"],
        numa_node=nodes.get(bus),
        fabric=said["fabric"] or "",
    )


def _bus(text: str) -> str:
    """A PCI address as the kernel writes it; NVML writes the domain with eight digits, and in capitals."""
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", text.lower())


def _node(number: int) -> int | None:
    return number if number >= 0 else None
