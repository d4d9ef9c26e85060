"""Chooses the sizes of tensor, pipeline and expert parallelism to try, and the GPUs that each takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rigup.catalogue.engines import Engine, EngineVersion
from rigup.plan import Parallel
from rigup.planner.candidate import Candidate, expert_ranks
from rigup.rig import Rig
from rigup.service import EngineName, Service

TENSOR_SIZES = (1, 2, 4, 8, 16)

Layout = tuple[tuple[int, ...], Parallel]


def layouts(
    rig: Rig, service: Service, indices: tuple[int, ...], engine: Engine, release: EngineVersion
) -> Iterator[Layout]:
    """How the model may be spread. An engine made for GPUs comes without one only if it is named and built for CPUs.

    indices: the GPUs that the service may use, on each host if it has several.
    """
    built_for_cpus = service.engine == engine.name and release.environment("cpu") is not None
    if engine.name == "llama.cpp":
        yield from _llama_cpp_layouts(rig, service, indices)
    elif rig.hosts_per_service > 1:
        if rig.gpus or built_for_cpus:
            yield from _tensor_layouts_across_hosts(rig, service, indices, engine.name)
    elif rig.gpus:
        yield from _tensor_layouts(rig, service, indices, engine.name)
    elif built_for_cpus:
        sizes = (service.tensor_parallel, service.pipeline_parallel, service.data_parallel)
        tensor, pipeline, data = (size or 1 for size in sizes)
        yield (), Parallel(tensor=tensor, pipeline=pipeline, data=data)


def _llama_cpp_layouts(rig: Rig, service: Service, indices: tuple[int, ...]) -> Iterator[Layout]:
    """All GPUs by layer split, and the first alone unless the service names its GPUs; by tensor only as it asks.

    Layers are the default: by tensor llama.cpp has written 0.77 times as many tokens a second on two RTX 4090
    (GLM-4.5-Air), and on four as many of gpt-oss-120b, 1.25 times as many behind 65,536 tokens (llama.cpp#19378); its
    docs/multi-gpu.md calls it experimental.
    """
    if rig.hosts_per_service > 1:
        yield _devices_across_hosts(rig, indices), Parallel()
        return
    if splits_by_tensor(service) and service.tensor_parallel:
        yield indices[: service.tensor_parallel], Parallel(tensor=service.tensor_parallel)
        return
    yield indices, Parallel()
    if len(indices) > 1 and service.gpus is None:
        yield indices[:1], Parallel()


def splits_by_tensor(service: Service) -> bool:
    """Whether the service asks llama.cpp by name to cut each layer: by its tensor_parallel."""
    return service.engine == "llama.cpp" and (service.tensor_parallel or 1) > 1


def _tensor_layouts(rig: Rig, service: Service, indices: tuple[int, ...], engine: EngineName) -> Iterator[Layout]:
    """Tensor sizes, each with as many pipeline stages as there are GPUs for, and one GPU alone.

    What the service names is taken as it is, even if there are too few GPUs: then the refusal can say so. Of unequal
    GPUs, those with most memory are tried by themselves as well, unless the service names its GPUs.
    """
    if not indices:
        return
    groups = dict.fromkeys((indices,) if service.gpus is not None else (indices, _largest(rig, indices)))
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


def _sizes(service: Service, gpus: int, engine: EngineName) -> Iterator[Parallel]:
    """The sizes for so many GPUs, those included that are too large for them."""
    data = service.data_parallel or 1
    for tensor in (service.tensor_parallel,) if service.tensor_parallel else TENSOR_SIZES:
        most = max(1, gpus // (tensor * data))
        pipelines = (service.pipeline_parallel,) if service.pipeline_parallel else (most, 1) if tensor == 1 else (most,)
        expert = expert_ranks(engine, tensor, data) if service.expert_parallel else 1
        for pipeline in dict.fromkeys(pipelines):
            yield Parallel(tensor=tensor, pipeline=pipeline, data=data, expert=expert)


def _devices_across_hosts(rig: Rig, indices: tuple[int, ...]) -> tuple[int, ...]:
    """llama.cpp's devices in its own order: the workers' first, then the head's."""
    return tuple(rank * len(rig.gpus) + index for rank in (*range(1, rig.hosts_per_service), 0) for index in indices)


def _tensor_layouts_across_hosts(
    rig: Rig, service: Service, indices: tuple[int, ...], engine: EngineName
) -> Iterator[Layout]:
    """Layouts with the same number of GPUs on every host, by default tensor parallel within a host.

    Hosts whose GPU shares their memory have one GPU each and are made to be joined: for them, tensor parallel over all
    hosts comes first (unslothai/unsloth#10280: 2.09 times the speed of one DGX Spark on two, 1.08 times as a pipeline).

    Takes sizes from the service even if they are impossible, so that the refusal can explain why.

    indices: the GPUs that the service may use on each host.
    """
    hosts, data = rig.hosts_per_service, service.data_parallel or 1
    if not indices:
        sizes = (service.tensor_parallel or hosts // (service.pipeline_parallel or 1) or 1, service.pipeline_parallel)
        yield (), Parallel(tensor=sizes[0], pipeline=sizes[1] or 1, data=data)
        return
    joined = len(indices) * hosts if all(rig.gpus[index].unified_memory for index in indices) else len(indices)
    found = False
    for tensor in (service.tensor_parallel,) if service.tensor_parallel else sorted(TENSOR_SIZES, key=joined.__ne__):
        pipeline = service.pipeline_parallel or _stages(tensor, len(indices), hosts, data)
        ranks = tensor * pipeline * data
        inside = tensor <= len(indices) or tensor == joined or service.pipeline_parallel
        if not service.tensor_parallel and (ranks % hosts or ranks > len(indices) * hosts or not inside):
            continue
        found = True
        yield _shared_out(rig, indices, Parallel(tensor=tensor, pipeline=pipeline, data=data), service, engine)
    if not found:
        smallest = Parallel(pipeline=service.pipeline_parallel or 1, data=data)
        yield _shared_out(rig, indices, smallest, service, engine)


def _shared_out(rig: Rig, indices: tuple[int, ...], parallel: Parallel, service: Service, engine: EngineName) -> Layout:
    """The sizes with the GPUs that they use on each host, and with expert parallelism if the service wants it."""
    ranks, hosts = parallel.tensor * parallel.pipeline * parallel.data, rig.hosts_per_service
    on_each = indices[: -(-ranks // hosts)]
    used = tuple(rank * len(rig.gpus) + index for rank in range(hosts) for index in on_each)
    expert = expert_ranks(engine, parallel.tensor, parallel.data) if service.expert_parallel else 1
    return used[:ranks], parallel.model_copy(update={"expert": expert})


def _stages(tensor: int, gpus: int, hosts: int, data: int) -> int:
    """The largest number of pipeline stages: whole stages on each host, or across hosts if a stage needs several."""
    return max(1, gpus // tensor * hosts // data) if tensor <= gpus else max(1, gpus * hosts // (tensor * data))


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
