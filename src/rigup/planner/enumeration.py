"""Every way that a service's words leave open, before asking whether it fits or breaks a rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.engines import Engine, EngineVersion
from rigup.lock import Lock
from rigup.plan import Parallel
from rigup.planner.abilities import loads
from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft, usual_tokens
from rigup.planner.driver import driver_plan
from rigup.planner.engine_memory import MemorySettings, settings_of
from rigup.planner.inputs.names import ResolvedNames
from rigup.planner.moe_config import triton_version
from rigup.planner.offload import asked_in_flags, asked_layers, overrides_of
from rigup.planner.parallelism import layouts
from rigup.rig import Rig
from rigup.service import Service

DEFAULT_CONTEXT = 32_768
_KV_TYPES = {"llama.cpp": ("f16", "q8_0", "q4_0"), "vllm": ("bf16", "fp8"), "sglang": ("bf16", "fp8")}
_FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True)
class PlanningRequest:
    """One service on one rig, and all that is known: `rigup.planner.inputs.locked.planning_request` makes it.

    resolved: the service's names, looked up, with sizes as the lock has them.
    """

    rig: Rig
    service: Service
    resolved: ResolvedNames
    catalogue: Catalogue
    lock: Lock

    @property
    def context(self) -> int:
        """The context that must fit: what the service asks for, else 32,768 or all that the model has."""
        return self.service.context or min(self.resolved.model.context, DEFAULT_CONTEXT)

    @cached_property
    def smallest_bytes(self) -> int:
        """Bytes of the model's smallest checkpoint in the catalogue that one of the service's engines loads."""
        known = self.catalogue.checkpoints_by_model.get(self.resolved.model.name, ())
        releases = [release for _, release in self.resolved.engines]
        loaded = (entry.bytes for entry in known if any(loads(entry, release) for release in releases))
        return min(loaded, default=0)

    @cached_property
    def triton(self) -> dict[tuple[str, str], str | None]:
        """The locked version of Triton by engine and version."""
        environments = (entry for entry in self.lock.environments if entry.variant == "cuda")
        return {(entry.engine, entry.version): triton_version(entry) for entry in environments}

    @cached_property
    def driver_locked(self) -> bool:
        """Whether the lock pins the rig's driver."""
        return driver_plan(self.rig, self.lock) is not None


def candidates(request: PlanningRequest) -> Iterator[Candidate]:
    """Every possibility, in the catalogue's order. Pairs that cannot work come only if the service names both parts."""
    asked = insists(request.service)
    placements = {
        engine.name: tuple(_placements(request, engine, release))
        for engine, release in request.resolved.engines
        if _can_offload(request, engine) and (asked or _has_the_model(request, release))
    }
    for checkpoint in request.resolved.checkpoints:
        for engine, release in request.resolved.engines:
            if asked or loads(checkpoint, release):
                architecture = release.architecture_of(request.resolved.model, checkpoint)
                for placement in placements.get(engine.name, ()):
                    if kept := _as_the_engine_keeps(request, release, architecture, placement):
                        yield _candidate(request, checkpoint, engine, release, kept)


def _can_offload(request: PlanningRequest, engine: Engine) -> bool:
    """Whether the engine can do what `offload` asks for: llama.cpp alone tells experts from the rest."""
    service = request.service
    asks = service.offload == "experts" and service.engine is None and request.resolved.model.experts > 0
    return not asks or engine.name == "llama.cpp" or not request.rig.gpus


def _has_the_model(request: PlanningRequest, release: EngineVersion) -> bool:
    model = request.resolved.model
    has = any(not release.lacks(model, checkpoint) for checkpoint in request.resolved.checkpoints)
    return has or "model-support" in request.service.allow


def insists(service: Service) -> bool:
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


def _as_the_engine_keeps(
    request: PlanningRequest, release: EngineVersion, architecture: str | None, placement: _Placement
) -> _Placement | None:
    """With the KV cache that the engine takes by itself, where the service names none; None for every other type."""
    if request.service.kv_cache_type != "auto" or not release.own_cache_types:
        return placement
    on_hosts = [request.rig.gpus[index % len(request.rig.gpus)] for index in placement.gpu_indices]
    own = release.own_cache_type(architecture, on_hosts)
    if own is None:
        return placement
    return (
        placement._replace(kv_cache_type=own.name) if placement.kv_cache_type == _KV_TYPES[release.engine][0] else None
    )


def _candidate(
    request: PlanningRequest,
    checkpoint: CheckpointEntry,
    engine: Engine,
    release: EngineVersion,
    placement: _Placement,
) -> Candidate:
    gpus, parallel, kv_cache_type, settings = placement
    moved, layers = _experts_on_host(request, engine, gpus)
    build = (engine.name, release.version, request.rig.variant, request.rig.architecture)
    return Candidate(
        rig=request.rig,
        names=next((names for names in request.catalogue.name_lists if names.of_build(build)), None),
        service=request.service,
        catalogue=request.catalogue,
        driver_locked=request.driver_locked,
        triton=request.triton.get((engine.name, release.version)),
        gpu_indices=gpus,
        model=request.resolved.model,
        checkpoint=checkpoint,
        smallest_bytes=request.smallest_bytes,
        engine=engine,
        release=release,
        build=request.service.build or release.method,
        parallel=parallel,
        context=request.context,
        kv_cache_type=kv_cache_type,
        **settings.attempts[0]._asdict(),
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
    alike = (entry for entry in drafts if (entry.scheme == "gguf") == (checkpoint.scheme == "gguf"))
    suited = (entry for entry in alike if loads(entry, release))
    return Draft(asked.kind, tokens, request.resolved.draft_model, next(suited, drafts[0] if drafts else None))


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
    old = not gpus or any(request.rig.gpus[index].capability < _FP8_CAPABILITY for index in gpus)
    return tuple(kind for kind in _KV_TYPES[engine.name] if not (kind == "fp8" and old))
