"""What a probe says of a host, as frozen values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rigup.facts.gpus import GpuPair, Nvidia, PciGpu, ProbedGpu


@dataclass(frozen=True)
class Listener:
    """A TCP port that something listens on, with the systemd unit and the program, where they could be seen."""

    port: int
    address: str
    unit: str
    program: str


@dataclass(frozen=True)
class Disk:
    """A folder that rigup writes to: whether it can, how many bytes are free there, and where it is mounted."""

    folder: str
    writable: bool
    free_bytes: int
    size_bytes: int = 0
    mount: str = ""


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node: its CPUs as the kernel lists them ("0-15,32-47") and its memory."""

    node: int
    cpus: str
    memory_kib: int


@dataclass(frozen=True)
class UnitState:
    """What systemd says of one service's unit; `since` is a timestamp as systemd writes it."""

    active: str = "unknown"
    sub: str = ""
    restarts: int = 0
    since: str = ""
    overrides: str = ""


@dataclass(frozen=True)
class BuiltFor:
    """What a build on the host was made against, as `rigup.plan.MadeFor` has it."""

    cuda: str
    compute_capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnattendedUpgrades:
    """Whether packages are upgraded by themselves, and the patterns of those that are left alone."""

    installed: bool = False
    enabled: bool = False
    blacklist: tuple[str, ...] = ()


@dataclass(frozen=True)
class Probe:
    """What one host is.

    clock: its time in seconds since 1970. host_memory: channels, kind and speed ("8x DDR5-4800"), "" where the firmware
    does not tell. kernels, headers: releases of the kernels that are installed, and of those
    whose headers are. secure_boot: "on", "off", or "none" where the firmware knows none. held: packages on hold.
    pci_gpus: what the bus shows, driver or not. gpus: what NVML says, else what the kernel's module says.
    built_for: by build, of those for GPUs. built_by: by build, the host that made it, where noted.
    weights: folders of complete checkpoints. incoming: bytes of those that are being downloaded, by folder.
    current, releases, units: by service, the release's number, its contents, its unit.
    damaged: by service, what is wrong with its current release's file, of which `releases` has nothing then.
    """

    os: str = ""
    os_name: str = ""
    architecture: str = ""
    kernel: str = ""
    kernels: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    hostname: str = ""
    boot_id: str = ""
    init: str = ""
    clock: int = 0
    cpus: int = 0
    memory_kib: int = 0
    host_memory: str = ""
    secure_boot: str = ""
    disks: tuple[Disk, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    listeners: tuple[Listener, ...] = ()
    held: tuple[str, ...] = ()
    unattended_upgrades: UnattendedUpgrades = UnattendedUpgrades()
    nvidia: Nvidia = field(default_factory=Nvidia)
    pci_gpus: tuple[PciGpu, ...] = ()
    gpus: tuple[ProbedGpu, ...] = ()
    gpu_pairs: tuple[GpuPair, ...] = ()
    builds: tuple[str, ...] = ()
    built_for: dict[str, BuiltFor] = field(default_factory=dict)
    built_by: dict[str, str] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    incoming: dict[str, int] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    releases: dict[str, dict[str, Any]] = field(default_factory=dict)
    units: dict[str, UnitState] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    @property
    def driver(self) -> str:
        """The version of the NVIDIA driver that the kernel runs; "" where it runs none."""
        return self.nvidia.loaded

    def disk(self, path: str) -> Disk | None:
        """The disk that a path of rigup's lies on."""
        return next((disk for disk in self.disks if path.startswith(disk.folder + "/")), None)

    def as_json(self) -> dict[str, Any]:
        """The whole of it in plain values; `damaged` only where something is."""
        values = asdict(self)
        return values if self.damaged else {key: value for key, value in values.items() if key != "damaged"}
