"""Documents of what is decided offline: `plan`, `fit`, `init` and `up`."""

from typing import Literal, NotRequired, get_args

from pydantic import Field
from typing_extensions import TypedDict

from rigup.cli.output.json_documents.shared import (
    CheckpointName,
    EngineName,
    ErrorText,
    FileAction,
    HostOutcome,
    Schema,
    ServiceOfHost,
    Shown,
    Tenths,
)
from rigup.facts.host import Probe
from rigup.plan import Alternative, Finding, GpuMemory, HostParts, Parallel, Speed, Swap


class RigGpu(Shown):
    """A card as the rig declares it. memory_mib: null if it uses the host's memory."""

    index: int
    name: str
    memory_mib: int | None
    compute_capability: str


class RigText(Shown):
    """The rig. host_memory: channels, kind and speed, if declared."""

    gpus: list[RigGpu]
    host_memory_gib: float | None
    host_memory: str | None


class BuildName(Shown):
    """An engine's release and how it gets onto the host: "wheel", "source" or "image"."""

    name: str = Field(validation_alias="engine")
    version: str
    build: str = Field(validation_alias="method")


class ServiceName(Shown):
    """The service."""

    name: str
    port: int


class KernelConfig(Shown):
    """The fused-MoE configuration that the engine looks for, and where it comes from."""

    file: str
    status: Literal["engine", "files", "missing"]


class Warned(Shown):
    """A warning of a rule."""

    rule: str
    message: str
    source: str


class PlanOfService(Shown):
    """The plan of one service on one host. Everything that was not decided is null if `verdict` is "refused".

    nodes: the hosts of a service over several, by rank; [] for one.
    """

    host: str
    group: str
    verdict: Literal["ok", "refused"]
    rig: RigText
    service: ServiceName
    engine: BuildName | None = Field(validation_alias="build")
    checkpoint: CheckpointName | None
    draft: CheckpointName | None
    parallel: Parallel | None
    context: int | None
    kv_cache_type: str | None
    kv_tokens: int | None
    memory: list[GpuMemory] | None
    host_memory_mib: int | None
    host_memory_parts: HostParts | None = Field(validation_alias="host_parts")
    decode_tokens_per_second: Speed | None
    decode_with_full_context: Speed | None
    command: list[str] | None
    environment: dict[str, str] | None
    swap: Swap | None
    moe_config: KernelConfig | None
    kernels: dict[str, list[str]] | None
    quality: str | None
    traded: list[str] | None
    speculative: str | None
    warnings: list[Warned] | None
    refusals: list[Finding]
    alternatives: list[Alternative]
    nodes: list[str]
    rank: int


DECIDED = [name for name, field in PlanOfService.model_fields.items() if type(None) in get_args(field.annotation)]
"""What a plan has only if it is not refused."""


class IdleHost(TypedDict):
    """A host without services."""

    host: str
    group: str


class GatewayBackend(Shown):
    """A service behind a gateway."""

    host: str
    group: str
    service: str
    address: str
    port: int
    weight: int
    engine: str


class GatewayRoute(Shown):
    """A model's name and who serves it."""

    model: str
    backends: list[GatewayBackend]


class ClientLimits(Shown):
    """What a client may do; null for no limit."""

    requests_per_minute: int | None
    concurrency: int | None
    models: list[str] | None


class GatewayOffer(Shown):
    """What a gateway offers. sharing: the gateways with its `shared_address`. clients: by name."""

    host: str
    group: str
    kind: str
    listen: str
    port: int
    shared_address: str | None
    sharing: list[str]
    tls: bool
    clients: dict[str, ClientLimits]
    hold: int
    routes: list[GatewayRoute]
    warnings: list[Warned]


class PlanDocument(TypedDict):
    """`rigup plan --json`. disabled: services with `enabled = False`."""

    schema: Schema
    hosts: list[PlanOfService]
    idle: list[IdleHost]
    gateways: list[GatewayOffer]
    disabled: list[ServiceOfHost]


class MemoryComparison(Shown):
    """Memory as planned and as measured, MiB."""

    predicted_mib: Tenths
    measured_mib: Tenths
    error_mib: Tenths
    error_percent: Tenths
    worst_mib: Tenths


class CalibrationOfKind(Shown):
    """What starts of one kind have measured. wanted_mib: null, with `why_not`, if no constant follows from it."""

    engine: str
    version: str
    gpu: str
    gpus: int
    parallel: Parallel
    starts: int
    first: str
    last: str
    weights: MemoryComparison | None
    kv_cache: MemoryComparison | None
    overhead: MemoryComparison | None
    total: MemoryComparison | None
    runtime_mib: int
    needed_mib: int | None
    wanted_mib: int | None
    why_not: str | None
    left_out: list[str]


class CalibrationDocument(TypedDict):
    """`rigup plan --calibrate --json`. written: the file; null without --write, or with nothing to write."""

    schema: Schema
    calibrations: list[CalibrationOfKind]
    written: str | None


class JudgedService(TypedDict):
    """What an engine on a host says of a plan. asked: whether it has a judge. failed: why it said less; "" for nothing.

    weights_mib: of the fullest rank. kv_tokens: as the engine counts them, planned_kv_tokens: as the plan does.
    kv_cache_mib, buffers_mib: of llama.cpp's card with the least room to spare.
    """

    service: str
    engine: str
    version: str
    asked: bool
    refusal: str
    failed: str
    weights_mib: int | None
    kv_cache_mib: int | None
    buffers_mib: int | None
    kv_tokens: int | None
    planned_kv_tokens: int | None
    kernels: dict[str, tuple[str, ...]]


class JudgedHost(TypedDict):
    """state: "taken", "refused", or how the host failed."""

    host: str
    state: str
    services: list[JudgedService]
    errors: list[ErrorText]


class JudgementDocument(TypedDict):
    """`rigup plan --ask HOST --json`."""

    schema: Schema
    hosts: list[JudgedHost]


class ModelFit(TypedDict):
    """A model on a rig. Without `fits`, only `reason` says more."""

    model: str
    fits: bool
    reason: str
    license: str
    commercial: bool | None
    quality: NotRequired[str | None]
    checkpoint: NotRequired[CheckpointName]
    engine: NotRequired[EngineName]
    parallel: NotRequired[Parallel]
    gpus_used: NotRequired[int]
    context: NotRequired[int]
    kv_cache_type: NotRequired[str]
    decode_tokens_per_second: NotRequired[Speed]
    weights_in_host_memory: NotRequired[bool]


class RigFits(TypedDict):
    """The models that a rig can serve."""

    groups: list[str]
    rig: str
    models: list[ModelFit]
    do_not_fit: int
    filtered: int


class RigsDocument(TypedDict):
    """`rigup fit --json`."""

    schema: Schema
    rigs: list[RigFits]


class RigOfModel(ModelFit):
    """A rig that a model was tried on. accepted: whether it passes the filters."""

    groups: list[str]
    rig: str
    gpus: int
    hosts: int
    accepted: bool


class ModelDocument(TypedDict):
    """`rigup fit --model NAME --json`. least: the smallest rig of each card."""

    schema: Schema
    model: str
    rigs: list[RigOfModel]
    least: list[RigOfModel]


class InitDocument(TypedDict):
    """`rigup init --json`."""

    schema: Schema
    host: str
    group: str
    files: list[FileAction]
    probe: Probe
    plans: list[PlanOfService]


class ServiceAddress(TypedDict):
    """Where a service answers. tunnel: the command for a service on loopback; "" without."""

    service: str
    url: str
    tunnel: str
    curl: str


class UpDocument(TypedDict):
    """`rigup up --json`."""

    schema: Schema
    host: str
    group: str
    inventory: str
    files: list[FileAction]
    lock: FileAction
    plans: list[PlanOfService]
    hosts: list[HostOutcome]
    services: list[ServiceAddress]
