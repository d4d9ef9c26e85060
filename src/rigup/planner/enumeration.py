"""Every way that a service's words leave open, before asking whether it fits or breaks a rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.drivers import BranchReserve
from rigup.catalogue.engines import Engine, EngineVersion
from rigup.catalogue.moe_configs import MoeConfigFile
from rigup.catalogue.option_names import NameList
from rigup.catalogue.overheads import MeasuredOverhead
from rigup.catalogue.quality import Quality
from rigup.plan import Parallel
from rigup.planner.abilities import loads
from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft, usual_tokens
from rigup.planner.engine_memory import MemorySettings, settings_of
from rigup.planner.inputs.names import ResolvedNames
from rigup.planner.offload import asked_in_flags, asked_layers, overrides_of
from rigup.planner.parallelism import layouts
from rigup.rig import Rig
from rigup.service import Service
from rigup.units import compute_capability

DEFAULT_CONTEXT = 32_768
_KV_TYPES = {"llama.cpp": ("f16", "q8_0", "q4_0"), "vllm": ("bf16", "fp8"), "sglang": ("bf16", "fp8")}
_FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True, slots=True)
class PlanningRequest:
    """One service on one rig, with its names looked up. driver_reserve: what the driver keeps beyond the constants.

    moe_configs: every tuned kernel. triton: its locked version by engine and version.
    driver_locked: whether the lock pins the driver. name_lists: the fleet's own, of wheels that it has locked.
    overheads, qualities: the fleet's own figures of engines' memory and of quantisations. catalogued: every engine.
    smallest_bytes: of the model's smallest checkpoint in the catalogue that one of the service's engines loads.
    """

    rig: Rig
    service: Service
    resolved: ResolvedNames
    driver_reserve: BranchReserve | None = None
    moe_configs: tuple[MoeConfigFile, ...] = ()
    triton: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    driver_locked: bool = False
    name_lists: tuple[NameList, ...] = ()
    overheads: tuple[MeasuredOverhead, ...] = ()
    catalogued: tuple[Engine, ...] = ()
    qualities: tuple[Quality, ...] = ()
    smallest_bytes: int = 0

    @property
    def context(self) -> int:
        """The context that must fit: what the service asks for, else 32,768 or all that the model has."""
        return self.service.context or min(self.resolved.model.context, DEFAULT_CONTEXT)


def candidates(request: PlanningRequest) -> Iterator[Candidate]:
    """Every possibility, in the catalogue's order. Pairs that cannot work come only if the service names both parts."""
    insists = _insists(request.service)
    placements = {
        engine.name: tuple(_placements(request, engine, release))
        for engine, release in request.resolved.engines
        if _can_offload(request, engine) and (insists or _has_the_model(request, release))
    }
    for checkpoint in request.resolved.checkpoints:
        for engine, release in request.resolved.engines:
            if insists or loads(checkpoint, release):
                for placement in placements.get(engine.name, ()):
                    yield _candidate(request, checkpoint, engine, release, placement)


def _can_offload(request: PlanningRequest, engine: Engine) -> bool:
    """Whether the engine can do what `offload` asks for: llama.cpp alone tells experts from the rest."""
    service = request.service
    asks = service.offload == "experts" and service.engine is None and request.resolved.model.experts > 0
    return not asks or engine.name == "llama.cpp" or not request.rig.gpus


def _has_the_model(request: PlanningRequest, release: EngineVersion) -> bool:
    return "model-support" in request.service.allow or not release.lacks(request.resolved.model)


def _insists(service: Service) -> bool:
    """Whether the service names an engine and a checkpoint: then rules say what is wrong with the pair."""
    return service.engine is not None and (service.checkpoint is not None or service.quant is not None)


class _Placement(NamedTuple):
    """What an engine is told of GPUs and caches, whatever the checkpoint."""

    gpu_indices: tuple[int, ...]
    parallel: Parallel
    kv_cache_type: str
    settings: MemorySettings


def _placements(request: PlanningRequest, engine: Engine, release: EngineVersion) -> Iterator[_Placement]:
    service = request.service
    for gpus, parallel in layouts(request.rig, service, request.resolved.gpu_indices, engine, release):
        on_a_host = tuple(index for index in gpus if index < len(request.rig.gpus))
        settings = settings_of(engine, service, request.rig, on_a_host)
        for kv_cache_type in kv_cache_types(request, engine, on_a_host):
            yield _Placement(gpus, parallel, kv_cache_type, settings)


def _candidate(
    request: PlanningRequest,
    checkpoint: CheckpointEntry,
    engine: Engine,
    release: EngineVersion,
    placement: _Placement,
) -> Candidate:
    gpus, parallel, kv_cache_type, settings = placement
    fraction, batched_tokens, sequences = settings.attempts[0]
    moved, layers = _experts_on_host(request, engine, gpus)
    build = (engine.name, release.version, "cuda" if request.rig.gpus else "cpu", request.rig.architecture)
    return Candidate(
        rig=request.rig,
        names=next((names for names in request.name_lists if names.of_build(build)), None),
        service=request.service,
        driver_reserve=request.driver_reserve,
        overheads=request.overheads,
        qualities=request.qualities,
        driver_locked=request.driver_locked,
        moe_configs=request.moe_configs,
        triton=request.triton.get((engine.name, release.version)),
        gpu_indices=gpus,
        model=request.resolved.model,
        checkpoint=checkpoint,
        smallest_bytes=request.smallest_bytes,
        catalogued=request.catalogued,
        engine=engine,
        release=release,
        build=request.service.build or release.method,
        parallel=parallel,
        context=request.context,
        kv_cache_type=kv_cache_type,
        sequences=sequences,
        batched_tokens=batched_tokens,
        memory_fraction=fraction,
        attempts=settings.attempts,
        fraction_given=settings.fraction_given,
        eager=settings.eager,
        cpu_moe_layers=layers,
        expert_overrides=moved,
        cpu_offload_gib=settings.cpu_offload_gib,
        draft=_draft(request, checkpoint, release),
        asked_partition=settings.asked_partition if parallel.pipeline > 1 else (),
    )


def _draft(request: PlanningRequest, checkpoint: CheckpointEntry, release: EngineVersion) -> Draft | None:
    """What drafts: of a model, the first checkpoint that the release loads; rules refuse where it loads none."""
    asked, drafts = request.service.speculative, request.resolved.drafts
    if asked is None:
        return None
    tokens = asked.tokens or usual_tokens(request.resolved.model if asked.kind == "mtp" else None)
    suited = (entry for entry in drafts if loads(entry, release) and not _mixed(entry, checkpoint))
    return Draft(asked.kind, tokens, request.resolved.draft_model, next(suited, drafts[0] if drafts else None))


def _mixed(draft: CheckpointEntry, checkpoint: CheckpointEntry) -> bool:
    """Whether one is a GGUF and the other is not."""
    return (draft.scheme == "gguf") != (checkpoint.scheme == "gguf")


def _experts_on_host(request: PlanningRequest, engine: Engine, gpus: tuple[int, ...]) -> tuple[tuple[float, ...], int]:
    """What the service asks the host to keep: by tensor patterns, and the experts of how many of the first layers."""
    service, model = request.service, request.resolved.model
    if engine.name != "llama.cpp" or not gpus or not model.experts or request.rig.hosts_per_service > 1:
        return (), 0
    if asked_in_flags(service):
        return overrides_of(service, model.layers).shares, asked_layers(service, model.layers)
    return (), model.layers if service.offload == "experts" else 0


def kv_cache_types(request: PlanningRequest, engine: Engine, gpus: tuple[int, ...]) -> tuple[str, ...]:
    """The KV cache types to try, best first. fp8 is left out by default where a GPU does not compute in it."""
    asked = request.service.kv_cache_type
    if asked != "auto":
        return (asked,)
    capabilities = (request.rig.gpus[index].compute_capability for index in gpus)
    old = not gpus or any(compute_capability(capability) < _FP8_CAPABILITY for capability in capabilities)
    return tuple(kind for kind in _KV_TYPES[engine.name] if not (kind == "fp8" and old))
