"""Documents of verbs that talk to hosts: `apply`, `diff`, `rollback`, `prune`, `status`, `releases`, `log`."""

from typing import Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from rigup.cli.output.json_documents.shared import ErrorText, HostOutcome, Manifest, Schema, Shown, State
from rigup.facts.apply_records import SavedRecord
from rigup.facts.gpus import ProbedGpu
from rigup.run.drift import Drift


class RolloutOutcome(TypedDict):
    """A rolling apply. batches: begun. failed: the reason by host. next: the command that goes on; null at the end."""

    rolling: int
    max_failures: int
    batches: list[list[str]]
    done: list[str]
    failed: dict[str, str]
    not_begun: list[str]
    not_kept: str | None
    next: str | None


class SharedWeights(Shown):
    """A checkpoint that hosts shared. fetched, had: hosts. taken: bytes by host and by source, "hub" or a host."""

    repo: str
    quant: str
    bytes: int = Field(validation_alias="size")
    fetched: list[str] = Field(validation_alias="fetchers")
    had: list[str] = Field(validation_alias="complete")
    hub_bytes: int
    lan_bytes: int
    taken: dict[str, dict[str, int]]
    faults: list[str] = Field(validation_alias="messages")


class HostsDocument(TypedDict):
    """`rigup rollback --json`, and those of stop, start and restart."""

    schema: Schema
    hosts: list[HostOutcome]


class HostsDifference(TypedDict):
    """What differs between two hosts. values: by host; null where it has none."""

    part: str
    what: str
    values: dict[str, str | None]


class CompareDocument(HostsDocument):
    """`rigup compare --json`. differences: null if a host failed."""

    differences: list[HostsDifference] | None


class InstalledFiles(TypedDict):
    """What rigup has on a host. bytes: without weights."""

    services: list[str]
    bytes: int
    weights_bytes: int


class UninstallDocument(HostsDocument):
    """`rigup uninstall --json`. found: by host. weights: whether they were to go."""

    found: dict[str, InstalledFiles]
    weights: bool


class ApplyDocument(HostsDocument):
    """`rigup apply --json`. rollout: only with --rolling. weights: only if checkpoints were downloaded."""

    rollout: NotRequired[RolloutOutcome]
    weights: NotRequired[list[SharedWeights]]


class HostDrift(HostOutcome):
    """Pending changes of a host, and other differences from the plan."""

    drift: list[Drift]


class DiffDocument(TypedDict):
    """`rigup diff --json`."""

    schema: Schema
    hosts: list[HostDrift]


class Leftover(TypedDict):
    """Something that nothing needs any more."""

    what: str
    path: str
    bytes: int


class PrunedHost(TypedDict):
    """What was removed from a host, and what could be."""

    host: str
    state: str
    removed: list[Leftover]
    removable: list[Leftover]
    errors: list[ErrorText]


class PruneDocument(TypedDict):
    """`rigup prune --json`."""

    schema: Schema
    hosts: list[PrunedHost]


class HostState(Shown):
    """How a host was reached."""

    host: str
    state: State
    errors: list[ErrorText]


class MemberStatus(TypedDict):
    """A service that takes turns with others, as the plan has it. loaded: whether its model was, when it was asked."""

    service: str
    model: str
    checkpoint: dict[str, Any] | None
    loaded: bool


class ServiceStatus(TypedDict):
    """A service on a host. What could not be read is missing or null.

    stopped: because somebody asked for it. health: "answers" for a service that has answered.
    drift: what differs from the plan, "none" if nothing does. resident: of services that take turns, the model that is
    loaded. members: those services, whose unit has the name of the first; [] for a service alone.
    """

    host: str
    service: str
    health: str
    drift: str
    os: NotRequired[str]
    driver: NotRequired[str | None]
    gpus: NotRequired[list[ProbedGpu]]
    gpu_memory_used_mib: NotRequired[int | None]
    gpu_memory_mib: NotRequired[int | None]
    gpu_temperature_c: NotRequired[int | None]
    release: NotRequired[str | None]
    build: NotRequired[str | None]
    checkpoint: NotRequired[dict[str, Any] | None]
    unit: NotRequired[str]
    since: NotRequired[str | None]
    up_seconds: NotRequired[int | None]
    stopped: NotRequired[bool]
    restarts: NotRequired[int | None]
    seconds: NotRequired[float | None]
    resident: NotRequired[str | None]
    members: NotRequired[list[MemberStatus]]
    memory: NotRequired[list[dict[str, Any]]]
    moe_config: NotRequired[str | None]
    kernels: NotRequired[dict[str, list[str]]]


class BackendStatus(TypedDict):
    """A service as a gateway sees it. Figures are null if the gateway did not tell."""

    model: str
    host: str
    service: str
    state: str
    weight: int | None
    in_flight: int | None
    queued: int | None
    errors: int | None
    seconds: float | None


class GatewayStatus(TypedDict):
    """A gateway. certificate_days: until its certificate ends; null without one.

    prefix_routing_away: the models for which smg does not choose now, so that their backends with the fewest requests
    get them. holds_shared_address: whether this gateway has it now; null if that is unknown.
    """

    gateway: str
    kind: str
    answers: bool
    shared_address: str | None
    holds_shared_address: bool | None
    prefix_routing_away: list[str]
    certificate_days: float | None
    backends: list[BackendStatus]


class StatusDocument(TypedDict):
    """`rigup status --json`. time: with --watch, in seconds since 1970."""

    schema: Schema
    hosts: list[HostState]
    services: list[ServiceStatus]
    gateways: list[GatewayStatus]
    time: NotRequired[int]


class ReleaseText(TypedDict):
    """A retained release. replaced: the number of the release that ran before it."""

    number: int
    made: str
    current: bool
    answered: bool
    built_by: str | None
    replaced: int | None
    changed: list[str]
    manifest: Manifest


class HostError(ErrorText):
    """An error of one host."""

    host: str


class ReleasesDocument(TypedDict):
    """`rigup releases --json`: retained releases by host and service."""

    schema: Schema
    hosts: dict[str, dict[str, list[ReleaseText]]]
    errors: list[HostError]


class RecordedApply(SavedRecord):
    """One apply on one host, as printed. memory: planned and measured memory of services that were started."""

    memory: dict[str, Any] = {}  # a stored record is checked for the figures that are read again


class LogDocument(TypedDict):
    """`rigup log --json`."""

    schema: Schema
    host: str
    applies: list[RecordedApply]


class FileDocument(TypedDict):
    """`rigup report --json`: where the report was written."""

    schema: Schema
    file: str
