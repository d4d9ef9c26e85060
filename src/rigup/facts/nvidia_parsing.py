"""Combines the probe's lines about GPUs from NVML, the kernel module and the PCI bus. Pure."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from rigup.facts.bounds import Unreadable, count, kind, literal_of
from rigup.facts.gpus import FabricManager, GpuPair, GpuProcess, Nvidia, PcieLink, PciGpu, PowerLimits, ProbedGpu
from rigup.facts.host_output import Count, Figure, GpuIndex, HostOutput, Line, checked
from rigup.units import MIB

_DISPLAY, _BRIDGE = "0x03", "0x068"
_LIBRARY = "libnvidia-ml.so."
_NVML = "NVML output"
# installs Lambda's own builds of the driver, of CUDA and of frameworks together
_LAMBDA_PACKAGE, _LAMBDA = "lambda-stack-cuda", "Lambda Stack"


class _DriverOutput(HostOutput):
    """The driver; `programs/probe_gpus.py` explains each field."""

    driver: Line | None = None
    cuda: Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){0,2}$")] | None = None


_Process = Annotated[tuple[Count, Count | None, Line | None, Line], Field(strict=False)]


class _GpuOutput(HostOutput):
    """A GPU that responds."""

    gpu: GpuIndex
    name: Line
    uuid: Line
    bus: Line | None = None
    memory_total_mib: Count | None = None
    memory_used_mib: Count | None = None
    memory_reserved_mib: Count | None = None
    compute_capability: Annotated[str, Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")] | None = None
    temperature_c: Annotated[int, Field(ge=-273, le=10_000)] | None = None
    pcie_generation: Count | None = None
    pcie_generation_most: Count | None = None
    pcie_width: Count | None = None
    pcie_width_most: Count | None = None
    power_limit_w: Figure | None = None
    power_default_w: Figure | None = None
    power_least_w: Figure | None = None
    power_most_w: Figure | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    compute_mode: Line | None = None
    processes: Annotated[list[_Process], Field(max_length=100)] | None = None
    throttled: Annotated[list[Line], Field(max_length=100)] | None = None
    nvlinks: Count | None = None
    fabric: Line | None = None


class _LostGpu(HostOutput):
    """A GPU that does not respond, and why."""

    gpu: GpuIndex
    error: Line


class _PairOutput(HostOutput):
    pair: Annotated[list[GpuIndex], Field(min_length=2, max_length=2)]
    path: Line | None = None
    peer: bool | None = None
    nvlink: bool | None = None


class _NvidiaOutput(HostOutput):
    system: _DriverOutput | None = None
    error: Line | None = None


@dataclass
class NvidiaLines:
    """Collects lines one by one; `driver` and `gpus` return the result at the end. nvidia: fields of `Nvidia`."""

    nvidia: dict[str, Any] = field(default_factory=dict)
    pci_gpus: list[PciGpu] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    bridges: int = 0
    switches: int = 0
    cards: dict[str, tuple[str, str]] = field(default_factory=dict)
    fabric: dict[str, str] = field(default_factory=dict)
    system: _DriverOutput = field(default_factory=_DriverOutput)
    answers: dict[int, _GpuOutput | _LostGpu] = field(default_factory=dict)
    pairs: dict[tuple[int, int], GpuPair] = field(default_factory=dict)

    def take(self, key: str, rest: str) -> None:
        """Takes one line. Raises ValueError if it is unreadable, Unreadable if NVML cannot have printed it."""
        if key == "driver":
            version = re.search(r" ([0-9]{1,6}(?:\.[0-9]{1,6}){1,3}) ", f"{rest} ")
            if version:
                flavour = "open" if "Open Kernel Module" in rest else "proprietary"
                self.nvidia |= {"loaded": version[1], "flavour": flavour}
        elif key == "library":
            self.nvidia["installed"] = rest.removeprefix(_LIBRARY) if rest.startswith(_LIBRARY) else ""
        elif key in ("nouveau", "installer"):
            self.nvidia[key] = True
        elif key == "image":
            self.nvidia[key] = rest
        elif key == "pci":
            bus, kind_of_device, device, node, *bar = rest.split()
            self._take_device(bus, kind_of_device, device, node, count(bar[0]) if bar else 0)
        elif key == "nvidia_device":
            self.devices.append(rest)
        elif key == "nvswitch":
            self.switches += 1
        elif key == "card":
            bus, uuid, name = rest.split(None, 2)
            self.cards[_bus(bus)] = (uuid, name)
        elif key == "nvml":
            self._take_line(literal_of(rest, _NVML))

    def _take_device(self, bus: str, kind: str, device: str, node: str, bar: int) -> None:
        if kind.startswith(_DISPLAY):
            window = bar // MIB if bar >= MIB else None
            self.pci_gpus.append(PciGpu(bus, "" if device == "unknown" else device, _node(node), window))
        elif kind.startswith(_BRIDGE):
            self.bridges += 1

    def _take_line(self, answer: object) -> None:
        if not isinstance(answer, dict):
            raise Unreadable(f"{_NVML}: expected an object, found {kind(answer)}")
        if "gpu" in answer:
            gpu = checked(_LostGpu, answer, _NVML) if "error" in answer else checked(_GpuOutput, answer, _NVML)
            self.answers[gpu.gpu] = gpu
        elif "pair" in answer:
            pair = checked(_PairOutput, answer, _NVML)
            first, second = pair.pair
            self.pairs[first, second] = GpuPair(first, second, pair.path or "", pair.peer, pair.nvlink)
        else:
            general = checked(_NvidiaOutput, answer, _NVML)
            self.system = general.system or self.system
            if general.error:
                self.nvidia["error"] = general.error

    def driver(
        self, packages: dict[str, str], unconfigured: dict[str, str], of_distribution: tuple[str, ...]
    ) -> Nvidia:
        """The driver. packages, unconfigured, of_distribution: from the probe's package list."""
        managers = [version for name, version in packages.items() if name.startswith("nvidia-fabricmanager")]
        there = self.fabric.get("LoadState") == "loaded"
        image = _LAMBDA if _LAMBDA_PACKAGE in packages else ""
        return Nvidia(
            **({"image": image} | self.nvidia),
            cuda=self.system.cuda or "",
            packages=packages,
            of_distribution=of_distribution,
            unconfigured=unconfigured,
            devices=tuple(self.devices),
            nvswitches=self.switches or self.bridges,
            fabric_manager=FabricManager(
                version=next(iter(managers), ""),
                active=self.fabric.get("ActiveState", "") if there else "",
                enabled=self.fabric.get("UnitFileState", "") if there else "",
            ),
        )

    def gpus(self, memory_kib: int) -> tuple[ProbedGpu, ...]:
        """Each GPU as NVML reports it; without NVML, only names and UUIDs from the kernel module."""
        nodes = {_bus(device.bus): device.numa_node for device in self.pci_gpus}
        if not self.answers:
            return tuple(
                ProbedGpu(name, index=index, uuid=uuid, bus=bus, numa_node=nodes.get(bus))
                for index, (bus, (uuid, name)) in enumerate(sorted(self.cards.items()))
            )
        answering = {_bus(answer.bus or "") for answer in self.answers.values() if isinstance(answer, _GpuOutput)}
        missing = iter(sorted(set(self.cards) - answering))
        gpus: list[ProbedGpu] = []
        for index, answer in sorted(self.answers.items()):
            if isinstance(answer, _LostGpu):
                # NVML gives only the index of a lost card; the kernel module still knows which bus stopped responding
                bus = next(missing, "")
                uuid, name = self.cards.get(bus, ("", ""))
                gpus.append(
                    ProbedGpu(name, index=index, uuid=uuid, bus=bus, error=answer.error, numa_node=nodes.get(bus))
                )
            else:
                gpus.append(_gpu(answer, nodes, memory_kib))
        return tuple(gpus)


def _gpu(gpu: _GpuOutput, nodes: dict[str, int | None], memory_kib: int) -> ProbedGpu:
    bus, total = _bus(gpu.bus or ""), gpu.memory_total_mib
    return ProbedGpu(
        name=gpu.name,
        memory_used_mib=gpu.memory_used_mib,
        memory_total_mib=memory_kib // 1024 or None if total is None else total,
        temperature_c=gpu.temperature_c,
        index=gpu.gpu,
        uuid=gpu.uuid,
        bus=bus,
        memory_of_host=total is None,
        memory_reserved_mib=gpu.memory_reserved_mib,
        compute_capability=gpu.compute_capability or "",
        pcie=PcieLink(gpu.pcie_generation, gpu.pcie_width, gpu.pcie_generation_most, gpu.pcie_width_most),
        power=PowerLimits(gpu.power_limit_w, gpu.power_default_w, gpu.power_least_w, gpu.power_most_w),
        persistence=gpu.persistence,
        ecc=gpu.ecc,
        mig=gpu.mig,
        compute_mode=gpu.compute_mode or "",
        processes=None
        if gpu.processes is None
        else tuple(GpuProcess(pid, program, unit, used) for pid, used, unit, program in gpu.processes),
        throttled=tuple(gpu.throttled or ()),
        nvlinks=gpu.nvlinks,
        numa_node=nodes.get(bus),
        fabric=gpu.fabric or "",
    )


def _bus(text: str) -> str:
    """A PCI address in the kernel's form; NVML writes the domain with eight digits, and in capitals."""
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", text.lower())


def _node(text: str) -> int | None:
    return None if text.startswith("-") else count(text)
