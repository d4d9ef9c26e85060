"""Every way that a service's words leave open, before asking whether it fits or breaks a rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.drivers import Reserve
from rigup.catalogue.engines import Engine, EngineVersion
from rigup.catalogue.moe_configs import MoeConfigFile
from rigup.catalogue.option_names import NameList
from rigup.catalogue.overheads import MeasuredOverhead
from rigup.catalogue.versions import version_key
from rigup.plan import Parallel
from rigup.planner.candidate import Candidate, expert_ranks
from rigup.planner.engine_memory import MemorySettings, settings_of
from rigup.planner.inputs.names import ResolvedNames
from rigup.planner.multinode.layouts import TENSOR_SIZES, devices_across_hosts, tensor_layouts_across_hosts
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
    overheads: what the fleet has measured of its engines' memory. catalogued: every engine that there is.
    """

    rig: Rig
    service: Service
    resolved: ResolvedNames
    driver_reserve: Reserve | None = None
    moe_configs: tuple[MoeConfigFile, ...] = ()
    triton: Mapping[tuple[str, str], str | None] = field(default_factory=dict)
    driver_locked: bool = False
    name_lists: tuple[NameList, ...] = ()
    overheads: tuple[MeasuredOverhead, ...] = ()
    catalogued: tuple[Engine, ...] = ()

    @property
    def context(self) -> int:
        """The context that must fit: what the service asks for, else 32,768 or all that the model has."""
        return self.service.context or min(self.resolved.model.context, DEFAULT_CONTEXT)


def candidates(request: PlanningRequest) -> Iterator[Candidate]:
    """Every possibility, in the catalogue's order. Pairs that cannot work come only if the service names both parts."""
    for checkpoint in request.resolved.checkpoints:
        for engine, release in request.resolved.engines:
            if (_has_the_model(request, release) and loads(checkpoint, release)) or _insists(request.service):
                yield from _spread(request, checkpoint, engine, release)


def _has_the_model(request: PlanningRequest, release: EngineVersion) -> bool:
    return "model-support" in request.service.allow or not release.lacks(request.resolved.model)


def loads(checkpoint: CheckpointEntry, release: EngineVersion) -> bool:
    """Whether that release of an engine loads that checkpoint at all, provided that it has the model."""
    if checkpoint.minimum_versions is None:
        return release.support(checkpoint.scheme) is not None
    oldest = checkpoint.minimum_versions.get(release.engine)
    return oldest is not None and version_key(oldest) <= release.key


def _insists(service: Service) -> bool:
    """Whether the service names an engine and a checkpoint: then rules say what is wrong with the pair."""
    return service.engine is not None and (service.checkpoint is not None or service.quant is not None)


def _spread(
    request: PlanningRequest, checkpoint: CheckpointEntry, engine: Engine, release: EngineVersion
) -> Iterator[Candidate]:
    service = request.service
    layouts = _layouts(request, engine, release)
    for gpus, parallel in layouts:
        on_a_host = tuple(index for index in gpus if index < len(request.rig.gpus))
        settings = settings_of(engine, service, request.rig, on_a_host)
        for kv_cache_type in kv_cache_types(request, engine, on_a_host):
            yield _candidate(request, checkpoint, engine, release, gpus, parallel, kv_cache_type, settings)


def _candidate(
    request: PlanningRequest,
    checkpoint: CheckpointEntry,
    engine: Engine,
    release: EngineVersion,
    gpus: tuple[int, ...],
    parallel: Parallel,
    kv_cache_type: str,
    settings: MemorySettings,
) -> Candidate:
    fraction, batched_tokens, sequences = settings.attempts[0]
    kind = (engine.name, release.version, "cuda" if request.rig.gpus else "cpu", request.rig.architecture)
    return Candidate(
        rig=request.rig,
        names=next((names for names in request.name_lists if names.kind == kind), None),
        service=request.service,
        driver_reserve=request.driver_reserve,
        overheads=request.overheads,
        driver_locked=request.driver_locked,
        moe_configs=request.moe_configs,
        triton=request.triton.get((engine.name, release.version)),
        gpu_indices=gpus,
        model=request.resolved.model,
        checkpoint=checkpoint,
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
        cpu_offload_gib=settings.cpu_offload_gib,
        asked_partition=settings.asked_partition if parallel.pipeline > 1 else (),
    )


def kv_cache_types(request: PlanningRequest, engine: Engine, gpus: tuple[int, ...]) -> tuple[str, ...]:
    """The KV cache types to try, best first. fp8 is left out by default where a GPU does not compute in it."""
    asked = request.service.kv_cache_type
    if asked != "auto":
        return (asked,)
    capabilities = (request.rig.gpus[index].compute_capability for index in gpus)
    old = not gpus or any(compute_capability(capability) < _FP8_CAPABILITY for capability in capabilities)
    return tuple(kind for kind in _KV_TYPES[engine.name] if not (kind == "fp8" and old))


def _layouts(
    request: PlanningRequest, engine: Engine, release: EngineVersion
) -> Iterator[tuple[tuple[int, ...], Parallel]]:
    """How the model may be spread. An engine made for GPUs comes without one only if it is named and built for CPUs."""
    if engine.name == "llama.cpp":
        yield from _llama_cpp_layouts(request)
    elif request.rig.hosts_per_service > 1:
        if request.rig.gpus or (request.service.engine == engine.name and release.environment("cpu") is not None):
            yield from tensor_layouts_across_hosts(
                request.rig, request.service, request.resolved.gpu_indices, engine.name
            )
    elif request.rig.gpus:
        yield from _tensor_layouts(request, engine)
    elif request.service.engine == engine.name and release.environment("cpu") is not None:
        asked = request.service
        sizes = {"tensor": asked.tensor_parallel, "pipeline": asked.pipeline_parallel, "data": asked.data_parallel}
        yield (), Parallel(**{name: size for name, size in sizes.items() if size})


def _llama_cpp_layouts(request: PlanningRequest) -> Iterator[tuple[tuple[int, ...], Parallel]]:
    """All GPUs by layer split, and the first alone unless the service names its GPUs."""
    indices = request.resolved.gpu_indices
    if request.rig.hosts_per_service > 1:
        yield devices_across_hosts(request.rig, indices), Parallel()
        return
    yield indices, Parallel()
    if len(indices) > 1 and request.service.gpus is None:
        yield indices[:1], Parallel()


def _tensor_layouts(request: PlanningRequest, engine: Engine) -> Iterator[tuple[tuple[int, ...], Parallel]]:
    """Tensor sizes, each with as many pipeline stages as there are GPUs for, and one GPU alone.

    What the service names is taken as it is, even if there are too few GPUs: then the refusal can say so. Of unequal
    GPUs, those with most memory are tried by themselves as well, unless the service names its GPUs.
    """
    service, indices = request.service, request.resolved.gpu_indices
    if not indices:
        return
    groups = dict.fromkeys((indices,) if service.gpus is not None else (indices, _largest(request.rig, indices)))
    found = False
    for group in groups:
        for parallel in _sizes(service, len(group), engine):
            ranks = parallel.tensor * parallel.pipeline * parallel.data
            if ranks <= len(group) or (service.tensor_parallel and group == indices):
                found = True
                yield group[:ranks], parallel
    if not found:
        yield indices, next(_sizes(service, len(indices), engine))


def _largest(rig: Rig, indices: tuple[int, ...]) -> tuple[int, ...]:
    memory = {index: rig.gpus[index].memory_mib or 0 for index in indices}
    return tuple(index for index in indices if memory[index] == max(memory.values()))


def _sizes(service: Service, gpus: int, engine: Engine) -> Iterator[Parallel]:
    """The sizes for so many GPUs, those included that are too large for them."""
    data = service.data_parallel or 1
    for tensor in (service.tensor_parallel,) if service.tensor_parallel else TENSOR_SIZES:
        most = max(1, gpus // (tensor * data))
        pipelines = (service.pipeline_parallel,) if service.pipeline_parallel else (most, 1) if tensor == 1 else (most,)
        expert = expert_ranks(engine.name, tensor, data) if service.expert_parallel else 1
        for pipeline in dict.fromkeys(pipelines):
            yield Parallel(tensor=tensor, pipeline=pipeline, data=data, expert=expert)


def with_expert_parallel(candidate: Candidate) -> Candidate | None:
    """The same with whole experts spread over the GPUs; None if the service or the model does not allow it.

    vLLM spreads them over the data parallel ranks as well.
    """
    parallel = candidate.parallel
    size = expert_ranks(candidate.engine.name, parallel.tensor, parallel.data)
    open_to_it = candidate.service.expert_parallel is None and candidate.engine.name != "llama.cpp"
    if size == 1 or not open_to_it or not candidate.model.experts:
        return None
    return replace(candidate, parallel=parallel.model_copy(update={"expert": size}))
