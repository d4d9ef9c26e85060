"""A host as a probe finds it, as frozen values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rigup.facts.gpus import GpuPair, Nvidia, PciGpu, ProbedGpu


@dataclass(frozen=True)
class Listener:
    """A TCP port that a program listens on, with its systemd unit and its name if they are visible."""

    port: int
    address: str
    unit: str
    program: str


@dataclass(frozen=True)
class Disk:
    """A folder that rigup writes to: whether it is writable, how many bytes are free, and where it is mounted."""

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


RUNNING = ("active", "activating", "reloading", "deactivating")
"""States in which processes of a unit may run."""


@dataclass(frozen=True)
class UnitState:
    """The state of one service's unit in systemd; `since` is a timestamp in systemd's format."""

    active: str = "unknown"
    sub: str = ""
    restarts: int = 0
    since: str = ""
    overrides: str = ""


@dataclass(frozen=True)
class BuiltFor:
    """The CUDA version and GPUs that a build on the host was made for, as in `rigup.plan.MadeFor`."""

    cuda: str
    compute_capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnattendedUpgrades:
    """Whether the host upgrades packages automatically, and the patterns of packages that it leaves alone."""

    installed: bool = False
    enabled: bool = False
    blacklist: tuple[str, ...] = ()


@dataclass(frozen=True)
class Probe:
    """The state of one host.

    clock: its time in seconds since 1970. host_memory: channels, kind and speed ("8x DDR5-4800"), "" if the firmware
    does not tell. kernels, headers: releases of installed kernels and of installed headers. kernel_packages: packages
    that bring new kernels. kernel_modules: by release of a kernel, the version of NVIDIA's module that it would load;
    read only where a driver runs. os_like: the ids of the systems that this one follows, separated by spaces.
    virtualisation: as systemd-detect-virt says ("kvm", "lxc", "wsl"); "none" on hardware.
    secure_boot: "on", "off", or "none" if the firmware does not support it. held: packages on hold.
    unfinished: packages that dpkg has unpacked or configured by halves.
    pci_gpus: GPUs on the bus, with or without a driver. gpus: as NVML reports them, or else the kernel module.
    built_for: by build, its CUDA version and GPUs; only builds with CUDA. built_by: by build, the host that made it.
    weights: folders of complete checkpoints. incoming: by folder, bytes of a checkpoint that is being downloaded.
    kept_wheels: whether wheels of engines are in `layout.PACKAGES`, of earlier builds or of one that did not end.
    current, releases, units: by service, its release number, the release's manifest, and its unit.
    stopped: services that a user stopped, or whose `enabled` is False in the inventory.
    damaged: by service, the problem with its release's manifest; `releases` then lacks the service.
    """

    os: str = ""
    os_name: str = ""
    os_like: str = ""
    architecture: str = ""
    kernel: str = ""
    kernels: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    kernel_modules: dict[str, str] = field(default_factory=dict)
    kernel_packages: tuple[str, ...] = ()
    hostname: str = ""
    boot_id: str = ""
    init: str = ""
    virtualisation: str = ""
    clock: int = 0
    cpus: int = 0
    memory_kib: int = 0
    host_memory: str = ""
    secure_boot: str = ""
    disks: tuple[Disk, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    listeners: tuple[Listener, ...] = ()
    held: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
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
    kept_wheels: bool = False
    current: dict[str, str] = field(default_factory=dict)
    releases: dict[str, dict[str, Any]] = field(default_factory=dict)
    units: dict[str, UnitState] = field(default_factory=dict)
    stopped: tuple[str, ...] = ()
    damaged: dict[str, str] = field(default_factory=dict)

    def active(self, service: str) -> str:
        """The state of a service's unit as systemd says it; "unknown" if the host did not say it."""
        return self.units.get(service, UnitState()).active

    def rests(self, service: str) -> bool:
        """Whether a service was stopped on purpose and does not run."""
        return service in self.stopped and self.active(service) not in RUNNING

    def disk(self, path: str) -> Disk | None:
        """The disk that holds one of rigup's paths."""
        return next((disk for disk in self.disks if path.startswith(disk.folder + "/")), None)

    def as_json(self) -> dict[str, Any]:
        """The probe in plain values; `damaged` only if a release is damaged."""
        values = asdict(self)
        return values if self.damaged else {key: value for key, value in values.items() if key != "damaged"}
