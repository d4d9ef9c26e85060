"""The plan: rig + service + catalogue + lock, decided. All that passes from the pure side to the effects side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from rigup.environment import Architecture, LockedEnvironment, LockedImage, LockedUv, Variant
from rigup.lock import LockedFile
from rigup.node import Node, PeerPort
from rigup.rig import Rig
from rigup.service import Service
from rigup.units import Frozen


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


class Finding(Frozen):
    """What one rule has to say. A refusal has a hint; a warning may."""

    rule: str
    message: str
    hint: str = ""
    source: str = ""


class Alternative(Frozen):
    """Something that would fit on this rig, or a runner-up that lost; `why` says which and for what reason."""

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

    address, sha256, root: the source archive (see lock.LockedSource). flags: CMake flags. packages, runtime_packages:
    Debian packages needed to build and to run. pinned_packages, pinned_runtime_packages: NVIDIA's, by name with the
    version that the lock has. environment, uv: of a wheel build; image: of an image build; None while not locked.
    provides: versions of distributions that the environment stands for without having them.
    made_for: None for a build that needs no GPU.
    None of it depends on a host beyond what the rig says.
    """

    engine: Literal["vllm", "sglang", "llama.cpp"]
    version: str
    method: Literal["wheel", "source", "image"]
    address: str | None = None
    sha256: str | None = None
    root: str = ""
    flags: tuple[str, ...] = ()
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
    made_for: MadeFor | None = None


class Checkpoint(Frozen):
    """The files that are served. `files` is empty and `revision` None where the lock does not pin the checkpoint yet.

    entry: what the engine is pointed at, relative to the revision's folder ("" for the folder itself).
    """

    repo: str
    quant: str
    bytes: int
    revision: str | None = None
    files: tuple[LockedFile, ...] = ()
    entry: str = ""


class Parallel(Frozen):
    """How the model is spread: sizes of each kind; `expert` is 1 where experts are not split."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1


class GpuMemory(Frozen):
    """What one GPU will hold, MiB. The four parts add up to the capacity."""

    gpu: int
    capacity_mib: int
    weights_mib: int
    kv_cache_mib: int
    overhead_mib: int
    free_mib: int


class Speed(Frozen):
    """Estimated decode tokens per second, as a range."""

    low: float
    high: float


class MoeConfig(Frozen):
    """The fused-MoE kernel config that the engine will look for, and whether anyone has one.

    experts, width: of the kernel (E, N). device: the card, as NVML names it.
    pins: the files that are taken, one for each kind of card: path below `files/moe_configs` to sha256.
    unlocked: those of them that the lock does not have.
    """

    file: str
    status: Literal["engine", "files", "missing"]
    experts: int
    width: int
    device: str
    pins: dict[str, str] = {}
    unlocked: tuple[str, ...] = ()


class MoeFolder(Frozen):
    """The folder of tuned kernel configs that a service is pointed at, on the host.

    path: holds a digest of all that is in it, so that another content is another folder. files: text by path below it.
    packaged: folders of the build, below its site-packages; the first that exists is copied to `copied_to` beneath
    them, because the engine takes this folder in place of its own.
    """

    path: str
    files: dict[str, str]
    packaged: tuple[str, ...] = ()
    copied_to: str = ""


class Figure(Frozen):
    """One figure that a decision rests on, for `--explain`."""

    subject: str
    figure: str
    value: str
    source: str


class Plan(Frozen):
    """Decided for one service on one host. `verdict` "refused" leaves everything after `service` at its default.

    context: tokens. kv_tokens: how many tokens fit into the KV cache. host_memory_mib: what it takes of host memory.
    command: argv[0] is relative to the build's folder, or what an image calls its program; paths under the weights root
    are absolute.
    driver: None where rigup leaves the host's own alone. driver_floor: the lowest branch that engine and cards accept.
    gpu_uuids: which card of the host each index is, in the order of use; empty until a probe has told, and where the
    service has every card of a rig of equal ones.
    nodes: of a service that spans hosts, all of them by rank; () for one host. rank: this host's. Memory is that of
    this host's GPUs alone. Only the head (rank 0) has the API; `command` of the others is what joins it, () where Ray
    is all that they run. Those of llama.cpp have no checkpoint: the head reads the files and sends each its layers.
    peer_ports: that must be reached before anything starts. peer_traffic: the engine opens further ports between them.
    whole: a digest of what all its hosts run, once a probe has told their addresses.
    """

    host: str
    group: str
    verdict: Literal["ok", "refused"]
    rig: Rig
    service: Service
    build: Build | None = None
    checkpoint: Checkpoint | None = None
    parallel: Parallel | None = None
    context: int | None = None
    kv_cache_type: str | None = None
    kv_tokens: int | None = None
    memory: tuple[GpuMemory, ...] = ()
    host_memory_mib: int | None = None
    decode_tokens_per_second: Speed | None = None
    decode_at_concurrency: Speed | None = None
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    health_path: str = "/health"
    served_name: str = ""
    start_timeout_s: int = 600
    moe_config: MoeConfig | None = None
    moe_folder: MoeFolder | None = None
    driver: DriverPlan | None = None
    gpu_uuids: dict[int, str] = {}
    driver_floor: int = 0
    nodes: tuple[Node, ...] = ()
    rank: int = 0
    peer_ports: tuple[PeerPort, ...] = ()
    peer_traffic: bool = False
    whole: str = ""
    warnings: tuple[Finding, ...] = ()
    refusals: tuple[Finding, ...] = ()
    silenced: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    figures: tuple[Figure, ...] = ()

    @property
    def on_ray(self) -> bool:
        """Whether Ray joins its hosts."""
        return bool(self.nodes) and self.service.across_hosts == "ray"


def plans_by_host(plans: Iterable[Plan]) -> dict[str, tuple[Plan, ...]]:
    """Groups plans by host name, in order."""
    grouped: dict[str, tuple[Plan, ...]] = {}
    for plan in plans:
        grouped[plan.host] = (*grouped.get(plan.host, ()), plan)
    return grouped
