"""The plan: the decision from rig, service, catalogue and lock. It is all that pure code passes to code with effects.

A `rigup.planner.decision.Decision` has no command lines, a `Plan` has those of one host as far as they are known
offline, and a `BoundPlan` is exact: it includes the results of probing the host.
"""

from collections.abc import Iterable
from typing import Literal

from rigup.artifacts import (
    Architecture,
    CudaCompiler,
    LockedEnvironment,
    LockedImage,
    LockedUv,
    Variant,
    WheelLibrary,
)
from rigup.layout import weights_folder
from rigup.lock import LockedFile
from rigup.node import Node, PeerPort, address_of
from rigup.rig import Rig
from rigup.service import BuildMethod, EngineName, Service
from rigup.units import Frozen, Port


class DriverPlan(Frozen):
    """The NVIDIA driver that a rig gets, at exactly `version`.

    flavour: of the kernel modules. floor: the lowest branch that the engine's CUDA and the cards accept.
    fabric_manager: whether the cards need one whatever the bus shows. subnet_manager: for NVLink 5.
    """

    version: str
    branch: str
    flavour: Literal["open", "proprietary"]
    floor: int = 0
    fabric_manager: bool = False
    subnet_manager: bool = False


class DriverPackages(Frozen):
    """The driver packages of one host.

    pin: installed first, to keep packages of other branches out. headers: of `kernel`, and of future kernels.
    at_version: at exactly the driver's version. beside: at any version that apt has. modules: kernel modules to load at
    boot. units: that must run.
    """

    pin: str
    kernel: str
    headers: tuple[str, ...]
    at_version: tuple[str, ...]
    beside: tuple[str, ...]
    modules: tuple[str, ...]
    units: tuple[str, ...]


class DriverRepository(Frozen):
    """The repository of one host's packages, and the key that signs them. `address` ends with a slash."""

    address: str
    key_address: str
    fingerprint: str
    architecture: str


class Finding(Frozen):
    """The result of one rule. A refusal has a hint; a warning may have one."""

    rule: str
    message: str
    hint: str = ""
    source: str = ""


class Alternative(Frozen):
    """A choice that would fit on this rig, or a runner-up; `why` gives the reason."""

    engine: str
    checkpoint: str
    context: int
    why: str


class MadeFor(Frozen):
    """What a build was made against: a CUDA release ("13.0", "13.0.2"), and the compute capabilities of its code.

    compute_capabilities: ascending; () for wheels and images, which hold code for many.
    """

    cuda: str
    compute_capabilities: tuple[str, ...] = ()


class Build(Frozen):
    """One pinned engine build and how it gets onto the host.

    address, sha256, root: the source archive (see lock.LockedSource). flags: CMake flags. cmake: text that CMake reads
    after each project(). packages, runtime_packages: Debian packages needed to build and to run. pinned_packages,
    pinned_runtime_packages: NVIDIA's, by name with the version that the lock has. environment, uv: of a wheel build;
    image: of an image build; None while not locked.
    provides: versions of distributions that the environment replaces without containing them.
    compiler: None where the engine compiles no GPU kernels on the host, or comes with all that it needs for them.
    made_for: None for a build that needs no GPU.
    library: what a build from source should be compiled with; None for most.
    Nothing in it depends on a host beyond the rig.
    """

    engine: EngineName
    version: str
    method: BuildMethod
    address: str | None = None
    sha256: str | None = None
    root: str = ""
    flags: tuple[str, ...] = ()
    cmake: str = ""
    targets: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    runtime_packages: tuple[str, ...] = ()
    pinned_packages: dict[str, str] = {}
    pinned_runtime_packages: dict[str, str] = {}
    variant: Variant = "cuda"
    architecture: Architecture = "x86_64"
    environment: LockedEnvironment | None = None
    provides: dict[str, str] = {}
    uv: LockedUv | None = None
    image: LockedImage | None = None
    compiler: CudaCompiler | None = None
    made_for: MadeFor | None = None
    library: WheelLibrary | None = None

    @property
    def own_compiler(self) -> CudaCompiler | None:
        """Its compiler, if the locked packages have it: locks of rigup before December 2026 do not."""
        wanted, there = self.compiler, self.environment
        return wanted if wanted and there and there.has(wanted.package, wanted.series) else None

    @property
    def own_library(self) -> WheelLibrary | None:
        """Its library, if the lock has it: those of rigup before December 2026 do not."""
        return self.library if self.library and self.library.wheel else None


class Checkpoint(Frozen):
    """The files to serve. `files` is empty and `revision` None where the lock does not pin the checkpoint yet.

    entry: the path that the engine gets, relative to the revision's folder ("" for the folder itself).
    location: where the files are, if not in `repo` on the hub (`rigup.service.location_of`).
    """

    repo: str
    quant: str
    bytes: int
    revision: str | None = None
    files: tuple[LockedFile, ...] = ()
    entry: str = ""
    location: str = ""

    @property
    def host_folder(self) -> str | None:
        """The folder of the host in which the files lie already; None where rigup downloads them.

        Services see each file, and nothing else of it, in the folder in which rigup keeps the receipt.
        """
        if not self.location.startswith("/"):
            return None
        return self.location.rpartition("/")[0] or "/" if self.location.endswith(".gguf") else self.location

    @property
    def shown_files(self) -> dict[str, str]:
        """For files that lie on the host already: the path of each on the host, by its path for services."""
        folder = self.host_folder
        if folder is None or self.revision is None:
            return {}
        own = weights_folder(self.repo, self.revision)
        return {f"{own}/{file.path}": f"{folder.rstrip('/')}/{file.path}" for file in self.files}


class Parallel(Frozen):
    """How the model is spread: sizes of each kind; `expert` is 1 where experts are not split."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    @property
    def text(self) -> str:
        """The sizes above 1 in a few letters: "TP4 EP4"; "" where there is none."""
        named = (("TP", self.tensor), ("PP", self.pipeline), ("DP", self.data), ("EP", self.expert))
        return " ".join(f"{name}{size}" for name, size in named if size > 1)


class GpuMemory(Frozen):
    """What one GPU will hold, MiB. The four parts add up to the capacity."""

    gpu: int
    capacity_mib: int
    weights_mib: int
    kv_cache_mib: int
    overhead_mib: int
    free_mib: int


class Speed(Frozen):
    """Estimated decode tokens per second, as a range. note: what is missing and slows it, "" for nothing."""

    low: float
    high: float
    note: str = ""


class Swap(Frozen):
    """The part of a service in a swap group, whose services take turns in one process.

    preset: its section of the file that llama-server's router reads. others: the services that it takes turns with.
    first: the first service of the group, which the unit has its name from.
    resident: whether it is loaded after a start. bytes: what is read to load it. low, high: estimated seconds for
    that; the range is from the host's memory to a slow disk.
    """

    preset: str
    others: tuple[str, ...]
    first: str
    resident: bool
    bytes: int
    low: float
    high: float


class MoeConfig(Frozen):
    """The fused-MoE kernel config that the engine looks for, and whether one exists.

    experts, width: of the kernel (E, N). device: the card, as NVML names it. dtype: in the engines' names, "" for 16
    bits. block_shape: of the weights' scales.
    pins: the files that are taken, one for each kind of card: path below `files/moe_configs` to sha256.
    unlocked: those of them that the lock does not have.
    """

    file: str
    status: Literal["engine", "files", "missing"]
    experts: int
    width: int
    device: str
    dtype: str
    block_shape: tuple[int, int] | None
    pins: dict[str, str] = {}
    unlocked: tuple[str, ...] = ()


class MoeFolder(Frozen):
    """The folder of tuned kernel configs on the host that a service uses.

    path: contains a digest of its contents, so that other contents get another folder. files: text by path below it.
    packaged: folders of the build, below its site-packages; the first that exists is copied to `copied_to` beneath
    them, because the engine uses this folder instead of its own.
    """

    path: str
    files: dict[str, str]
    packaged: tuple[str, ...] = ()
    copied_to: str = ""


class Evidence(Frozen):
    """One figure behind a decision, for `--explain`."""

    subject: str
    figure: str
    value: str
    source: str


class Monitoring(Frozen):
    """`monitoring` in group_data. port: of the node exporter. dcgm_exporter: NVIDIA's, of the GPUs."""

    node_exporter: bool = True
    dcgm_exporter: bool = False
    listen: str = "127.0.0.1"
    port: Port = 9100
    dcgm_port: Port = 9400

    @property
    def listeners(self) -> dict[str, int]:
        """The ports that exporters listen on, by the key that names each."""
        wanted = {"port": self.node_exporter and self.port, "dcgm_port": self.dcgm_exporter and self.dcgm_port}
        return {key: int(port) for key, port in wanted.items() if port}


class HostParts(Frozen):
    """What a host without GPUs holds of a model, in bytes: as the engine's log says it."""

    weights: int
    kv_cache: int


class NumaBinding(Frozen):
    """The words of a command before the NUMA node of each card, in the order of use, and the packages they need."""

    words: tuple[str, ...]
    packages: tuple[str, ...]


class Plan(Frozen):
    """The decision for one service on one host. `verdict` "refused" leaves everything after `service` at its default.

    context: tokens. kv_tokens: how many tokens fit into the KV cache. host_memory_mib: host memory used.
    host_parts: of it, where there are no GPUs and one host serves alone.
    runtime_mib: what of each GPU is counted for the engine's own process, so that a start can be held against it.
    command: argv[0] is relative to the build's folder, or the name of an image's program; paths under the weights root
    are absolute.
    driver: None if rigup does not manage the host's driver. driver_floor: the lowest branch that engine and cards
    accept.
    nodes: of a service that spans hosts, all of them by rank; () for one host. rank: this host's. Memory is that of
    this host's GPUs alone. Only the head (rank 0) has the API; `command` of the others is what joins it, () where Ray
    is all that they run. llama.cpp's workers have no checkpoint: the head reads the files and sends each its layers.
    draft: the files of a model that drafts tokens.
    quality: the level of the checkpoint (rigup.catalogue.quality). traded: what the choice gave up, in sentences.
    speculative: what drafts tokens, or that something could; "" for neither.
    peer_ports: ports that must be reachable before anything starts. peer_traffic: the engine opens further ports
    between them.
    numa: how its processes are bound to the NUMA nodes of their cards on a host that has several; None for not at all.
    kernels: what the engine takes for each part of a step, as its own code said (rigup.catalogue.kernels); {} where
    it was not asked.
    swap: of a service in a swap group; its command is the group's. members: of the plan of a whole swap group, which is
    that of its first service otherwise, the plan of each; () for any other.
    """

    host: str
    group: str
    verdict: Literal["ok", "refused"]
    rig: Rig
    service: Service
    build: Build | None = None
    checkpoint: Checkpoint | None = None
    draft: Checkpoint | None = None
    parallel: Parallel | None = None
    context: int | None = None
    kv_cache_type: str | None = None
    kv_tokens: int | None = None
    memory: tuple[GpuMemory, ...] = ()
    runtime_mib: int = 0
    host_memory_mib: int | None = None
    host_parts: HostParts | None = None
    decode_tokens_per_second: Speed | None = None
    decode_with_full_context: Speed | None = None
    decode_at_concurrency: Speed | None = None
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    health_path: str = "/health"
    served_name: str = ""
    start_timeout_s: int = 600
    moe_config: MoeConfig | None = None
    moe_folder: MoeFolder | None = None
    driver: DriverPlan | None = None
    driver_floor: int = 0
    nodes: tuple[Node, ...] = ()
    rank: int = 0
    peer_ports: tuple[PeerPort, ...] = ()
    peer_traffic: bool = False
    warnings: tuple[Finding, ...] = ()
    refusals: tuple[Finding, ...] = ()
    silenced: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    figures: tuple[Evidence, ...] = ()
    quality: str = ""
    traded: tuple[str, ...] = ()
    speculative: str = ""
    numa: NumaBinding | None = None
    kernels: dict[str, tuple[str, ...]] = {}
    swap: Swap | None = None
    members: tuple["Plan", ...] = ()

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Everything that it loads, in a swap group in turn: what it serves, and what drafts tokens for that."""
        found = (one for each in self.members or (self,) for one in (each.checkpoint, each.draft) if one is not None)
        return tuple(dict.fromkeys(found))

    @property
    def on_ray(self) -> bool:
        """Whether Ray joins its hosts."""
        return bool(self.nodes) and self.service.across_hosts == "ray"


class BoundPlan(Plan):
    """A plan completed with the results of a probe. Made by `rigup.operations.service.gpu_binding.bind`.

    offline: the plan that it was made from. nodes: with their addresses, which the command and the environment have
    too. command: with the NUMA nodes of its cards where the host has several, and `build` with the packages for that.
    gpu_uuids: which card of the host each index is, in the order of use; empty while there is no driver to ask, and
    where the service uses every card of a rig with equal cards.
    group_digest: of what all hosts of a multi-host service run; "" of a service on one.
    """

    offline: Plan
    gpu_uuids: dict[int, str] = {}
    group_digest: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of all hosts of a multi-host service, by rank; a placeholder for one that is not known yet."""
        return tuple(node.address or address_of(rank) for rank, node in enumerate(self.nodes))


def plans_by_host(plans: Iterable[Plan]) -> dict[str, tuple[Plan, ...]]:
    """Groups plans by host name, in order."""
    grouped: dict[str, tuple[Plan, ...]] = {}
    for plan in plans:
        grouped[plan.host] = (*grouped.get(plan.host, ()), plan)
    return grouped
