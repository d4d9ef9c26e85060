"""What a probe says of GPUs and of their driver, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PcieLink:
    """A GPU's link to the host. An idle card often shows a low `generation`: judge by what it can do at most."""

    generation: int | None = None
    width: int | None = None
    most_generation: int | None = None
    most_width: int | None = None


@dataclass(frozen=True)
class PowerLimits:
    """Watts: what the limit is now, what it is after a reboot, and between which bounds it can be set."""

    limit_w: float | None = None
    default_w: float | None = None
    least_w: float | None = None
    most_w: float | None = None


@dataclass(frozen=True)
class ProbedGpu:
    """One GPU. None is a figure that the card does not have, or that nobody could be asked for.

    error: why it does not answer; everything that was not learned otherwise is unset then.
    memory_of_host: the GPU has no memory of its own; `memory_total_mib` is the host's.
    throttled: reasons, in words, for which it runs slower than it could right now.
    fabric: how far the fabric manager has got with it, where there is an NVSwitch: "not started", "in progress",
    "completed", or "failed: " and NVML's error; "" where there is none.
    """

    name: str
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    temperature_c: int | None = None
    index: int = 0
    uuid: str = ""
    bus: str = ""
    error: str = ""
    memory_of_host: bool = False
    memory_reserved_mib: int | None = None
    compute_capability: str = ""
    pcie: PcieLink = PcieLink()
    power: PowerLimits = PowerLimits()
    persistence: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    throttled: tuple[str, ...] = ()
    nvlinks: int | None = None
    numa_node: int | None = None
    fabric: str = ""


@dataclass(frozen=True)
class GpuPair:
    """How two GPUs reach each other, by index.

    path: the nearest thing they share: internal, single or multiple PCIe switches, host-bridge, node, or system (none).
    peer: whether one reads the other's memory directly. nvlink: whether NVLink does it.
    """

    first: int
    second: int
    path: str = ""
    peer: bool | None = None
    nvlink: bool | None = None


@dataclass(frozen=True)
class PciGpu:
    """A GPU as the PCI bus shows it, driver or not."""

    bus: str
    device: str = ""
    numa_node: int | None = None


@dataclass(frozen=True)
class FabricManager:
    """NVIDIA's fabric manager: its package's version ("" where it is not installed) and its unit's state."""

    version: str = ""
    active: str = ""
    enabled: str = ""


@dataclass(frozen=True)
class Nvidia:
    """The driver and what belongs to it.

    loaded: the version that the kernel runs. installed: the version of the library on disk. flavour: "open" or
    "proprietary", of the loaded module. cuda: the newest CUDA that the driver supports. error: what NVML says instead
    of answering. packages: version by name, of NVIDIA's packages. nvswitches: how many the machine has.
    """

    loaded: str = ""
    installed: str = ""
    flavour: str = ""
    cuda: str = ""
    error: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    unconfigured: tuple[str, ...] = ()
    nouveau: bool = False
    nvswitches: int = 0
    fabric_manager: FabricManager = FabricManager()

    @property
    def mismatched(self) -> bool:
        """Whether library and kernel disagree: nothing starts on the GPUs until a reboot or a reload."""
        return bool(self.loaded and self.installed and self.loaded != self.installed)
