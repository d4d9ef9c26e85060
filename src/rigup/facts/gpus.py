"""GPUs and their driver as a probe finds them, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PcieLink:
    """A GPU's link to the host. An idle card often reports a low `generation`: judge by `most_generation`."""

    generation: int | None = None
    width: int | None = None
    most_generation: int | None = None
    most_width: int | None = None


@dataclass(frozen=True)
class PowerLimits:
    """Watts: the current limit, the limit after a reboot, and the range in which it can be set."""

    limit_w: float | None = None
    default_w: float | None = None
    least_w: float | None = None
    most_w: float | None = None


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU. memory_mib: None if unknown.

    unit: its systemd unit, "" for none, None if the host does not tell, as of a process outside of its container.
    """

    pid: int
    program: str = ""
    unit: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class ProbedGpu:
    """One GPU. A figure is None if the card does not have it or could not be queried.

    error: why the GPU does not respond; figures that come only from it are then unset.
    memory_of_host: the GPU has no memory of its own; `memory_total_mib` is the host's.
    compute_mode: "default", "exclusive process", "exclusive thread" or "prohibited"; "" if unknown.
    processes: those that compute on it; None if NVML does not tell them.
    throttled: why it currently runs slower than it could, in words.
    fabric: the state of its registration with the fabric manager on a machine with an NVSwitch: "not started",
    "in progress", "completed", or "failed: " and NVML's error; "" on other machines.
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
    compute_mode: str = ""
    processes: tuple[GpuProcess, ...] | None = None
    throttled: tuple[str, ...] = ()
    nvlinks: int | None = None
    numa_node: int | None = None
    fabric: str = ""

    @property
    def peers_are_patched(self) -> bool:
        """Whether only patched kernel modules give it P2P over PCIe: NVIDIA's give GeForce cards from Ampere on none.

        Source: tinygrad/open-gpu-kernel-modules, README; club-3090, issue 461.
        """
        major = self.compute_capability.partition(".")[0]
        return "GeForce" in self.name and (not major.isdigit() or int(major) >= 8)


@dataclass(frozen=True)
class GpuPair:
    """How two GPUs reach each other, by index.

    path: their nearest common point: internal, single or multiple PCIe switches, host-bridge, node, or system (none).
    peer: whether one can read the other's memory directly. nvlink: whether NVLink connects them.
    """

    first: int
    second: int
    path: str = ""
    peer: bool | None = None
    nvlink: bool | None = None


@dataclass(frozen=True)
class PciGpu:
    """A GPU as the PCI bus reports it, with or without a driver.

    window_mib: how much of its memory the bus shows at once (BAR1): all of it, or 256 MiB if resizable BAR is off.
    """

    bus: str
    device: str = ""
    numa_node: int | None = None
    window_mib: int | None = None


@dataclass(frozen=True)
class FabricManager:
    """NVIDIA's fabric manager: its package's version ("" where it is not installed) and its unit's state."""

    version: str = ""
    active: str = ""
    enabled: str = ""


@dataclass(frozen=True)
class Nvidia:
    """The driver and its surroundings.

    loaded: the version that the kernel runs. installed: the version of the library on disk. flavour: "open" or
    "proprietary", of the loaded module. cuda: the newest CUDA that the driver supports. error: NVML's error, if it
    failed. packages: NVIDIA's packages, name to version; unconfigured: those that dpkg has not finished, likewise.
    of_distribution: those of both that the distribution built.
    installer: whether the uninstaller of NVIDIA's `.run` file is there. image: the data-centre image that the machine
    was set up with ("DGX OS 7.2.1"), "" for none. nvswitches: how many the machine has. devices: the nodes below /dev
    that programs open.
    """

    loaded: str = ""
    installed: str = ""
    flavour: str = ""
    cuda: str = ""
    error: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    of_distribution: tuple[str, ...] = ()
    unconfigured: dict[str, str] = field(default_factory=dict)
    installer: bool = False
    image: str = ""
    nouveau: bool = False
    devices: tuple[str, ...] = ()
    nvswitches: int = 0
    fabric_manager: FabricManager = FabricManager()

    @property
    def mismatched(self) -> bool:
        """Whether library and kernel module differ, so that no program can use the GPUs until a reboot or reload."""
        return bool(self.loaded and self.installed and self.loaded != self.installed)
