"""How a model can be split over the hosts of a service: tensor parallel within a host, pipeline between hosts.

Sources: vLLM 0.33.0 engine/arg_utils.py and v1/executor/multiproc_executor.py, SGLang 0.5.23 server_args.py: the number
of hosts must divide the world size, and the ranks of a host are consecutive.
"""

from __future__ import annotations

from collections.abc import Iterator

from rigup.node import PeerPort
from rigup.plan import Parallel
from rigup.planner.candidate import Candidate, expert_ranks
from rigup.rig import Rig
from rigup.service import EngineName, Service

TENSOR_SIZES = (1, 2, 4, 8, 16)
JOIN_PORTS_ABOVE = 10_000
WATCH_PORTS_APART = 20_000
HIGHEST_PORT = 65_535
_SOURCE = "vLLM engine/arg_utils.py: --nnodes must evenly divide the world size; SGLang server_args.py: the same"

Layout = tuple[tuple[int, ...], Parallel]


def join_port(service: Service) -> int:
    """The port on which the head waits for workers, or on which the workers' RPC servers listen."""
    return service.join_port if service.join_port is not None else service.port + JOIN_PORTS_ABOVE


def watch_port(service: Service) -> int:
    """The port on which the head watches the workers, at a fixed distance from the service's `port`."""
    above = service.port + WATCH_PORTS_APART
    return above if above <= HIGHEST_PORT else service.port - WATCH_PORTS_APART


def devices_across_hosts(rig: Rig, indices: tuple[int, ...]) -> tuple[int, ...]:
    """llama.cpp's devices in its own order: the workers' first, then the head's."""
    return tuple(rank * len(rig.gpus) + index for rank in (*range(1, rig.hosts_per_service), 0) for index in indices)


def tensor_layouts_across_hosts(
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


def indivisible_layout(candidate: Candidate) -> tuple[str, str, str] | None:
    """Why the sizes cannot be divided over the hosts, with a hint and a source; None if they can.

    Every host has the same number of ranks, and a tensor parallel group fits on one host or covers whole hosts.
    """
    parallel, hosts = candidate.parallel, candidate.hosts
    ranks = parallel.tensor * parallel.pipeline * parallel.data
    sizes = f"tensor {parallel.tensor} x pipeline {parallel.pipeline} x data {parallel.data}"
    if ranks % hosts or (not candidate.rig.gpus and ranks != hosts):
        whose = "hosts" if candidate.rig.gpus else "hosts without a GPU (one rank each)"
        message = (
            f"{sizes} are {ranks} rank{'s' if ranks > 1 else ''}, which cannot be divided evenly among {hosts} {whose}"
        )
        product = f"a multiple of {hosts}" if candidate.rig.gpus else str(hosts)
        return message, f"choose sizes whose product is {product} (rig.hosts_per_service)", _SOURCE
    each = ranks // hosts
    if each % parallel.tensor and parallel.tensor % each:
        return (
            f"{sizes} put {each} ranks on each of {hosts} hosts: a tensor parallel group of {parallel.tensor} would "
            "be split across part of a host",
            "choose a tensor_parallel that divides the number of GPUs used on a host, or is a multiple of it",
            _SOURCE,
        )
    return None


def tensor_spans_hosts(candidate: Candidate) -> bool:
    """Whether a tensor parallel group spans several hosts."""
    parallel = candidate.parallel
    each = parallel.tensor * parallel.pipeline * parallel.data // candidate.hosts
    return candidate.hosts > 1 and candidate.engine.name != "llama.cpp" and parallel.tensor > each


def peer_ports(engine: EngineName, service: Service, hosts: int) -> tuple[PeerPort, ...]:
    """The ports that the hosts of a service must reach on each other before the engine starts."""
    port, others = join_port(service), tuple(range(1, hosts))
    if service.across_hosts == "ray":  # Ray watches its hosts itself
        return (PeerPort(rank=0, port=port, purpose="ray", callers=others),)
    watch = PeerPort(rank=0, port=watch_port(service), purpose="watch", callers=others)
    if engine == "llama.cpp":
        return (*(PeerPort(rank=rank, port=port, purpose="rpc", callers=(0,)) for rank in others), watch)
    return (PeerPort(rank=0, port=port, purpose="rendezvous", callers=others), watch)
