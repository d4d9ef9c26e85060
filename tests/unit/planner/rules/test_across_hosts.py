"""A service over several hosts: its shape, the memory of each host, what each runs and what it must reach."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.lock import Lock
from rigup.node import PeerPort
from rigup.plan import Parallel, Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from tests.nodes import bound
from tests.unit.planner.across_hosts import option, planned, refusals
from tests.unit.planner.asking import FP8, NVFP4, PRO_6000, catalogue, served

NO_IMAGE = 'leave build out, which means "{}"'

VLLM = {"checkpoint": NVFP4, "engine": "vllm", "context": 8192}
GGUF = {"model": "MiniMax-M2.5", "quant": "UD-IQ2_XXS", "engine": "llama.cpp", "context": 8192}
SGLANG = {"checkpoint": FP8, "engine": "sglang", "tensor_parallel": 8, "context": 8192}
SMALL = {"model": "SmolLM2-135M-Instruct", "context": 2048}
SOURCE = "vLLM engine/arg_utils.py: --nnodes must evenly divide the world size; SGLang server_args.py: the same"


def test_tensor_parallel_stays_in_a_host_and_the_pipeline_goes_from_host_to_host() -> None:
    first, second = planned("4x RTX 3090", 2, VLLM)
    assert first.parallel == second.parallel == Parallel(tensor=4, pipeline=2)
    assert [node.host for node in first.nodes] == ["h0", "h1"] and first.nodes == second.nodes
    assert [(plan.host, plan.rank) for plan in (first, second)] == [("h0", 0), ("h1", 1)]
    assert [row.gpu for row in second.memory] == [0, 1, 2, 3]


def test_what_the_service_says_of_its_shape_is_taken() -> None:
    spanning = planned("4x RTX 3090", 2, {**VLLM, "tensor_parallel": 8})[0]
    assert spanning.parallel == Parallel(tensor=8)
    assert "tensor-across-hosts" in {finding.rule for finding in spanning.warnings}
    half = planned(f"2x {PRO_6000}", 2, {**VLLM, "tensor_parallel": 1, "pipeline_parallel": 2})
    assert half[0].parallel == Parallel(pipeline=2)
    assert [[row.gpu for row in plan.memory] for plan in half] == [[0], [0]]
    assert half[1].environment["CUDA_VISIBLE_DEVICES"] == "0"
    flat = planned("4x RTX 3090", 2, {**VLLM, "pipeline_parallel": 1})[0]
    assert flat.parallel == Parallel(tensor=8)


def test_the_memory_of_a_host_is_that_of_its_own_stages() -> None:
    """A pipeline over two hosts is a pipeline over two pairs in one: the same layers on the same cards."""
    over_hosts = planned("2x H200", 2, {"checkpoint": FP8, "engine": "vllm", "context": 32768, "tensor_parallel": 2})
    in_one = served("4x H200", {"checkpoint": FP8, "engine": "vllm", "context": 32768, "tensor_parallel": 2})
    assert in_one.parallel == over_hosts[0].parallel == Parallel(tensor=2, pipeline=2)
    rows = [row.model_copy(update={"gpu": 0}) for plan in over_hosts for row in plan.memory]
    assert rows == [row.model_copy(update={"gpu": 0}) for row in in_one.memory]
    assert over_hosts[0].memory[0].weights_mib != over_hosts[1].memory[0].weights_mib
    assert [plan.host_memory_mib for plan in over_hosts] == [2 * 5 * 1024] * 2
    assert in_one.host_memory_mib == 4 * 5 * 1024


def test_gpus_are_named_by_index_on_every_host() -> None:
    plans = planned("4x RTX 3090", 2, {**GGUF, "gpus": [1, 3]})
    assert [[row.gpu for row in plan.memory] for plan in plans] == [[1, 3], [1, 3]]
    assert {plan.environment["CUDA_VISIBLE_DEVICES"] for plan in plans} == {"1,3"}


def test_vllm_joins_its_hosts_itself() -> None:
    head, other = planned("4x RTX 3090", 2, VLLM)
    assert head.command[-10:] == (
        "--distributed-executor-backend", "mp", "--nnodes", "2", "--node-rank", "0",
        "--master-addr", "{node0.address}", "--master-port", "18000",
    )  # fmt: skip
    assert option(other, "--node-rank") == "1" and other.command[-1] == "--headless"
    assert without(head, "--node-rank") == without(other, "--node-rank", "--headless")
    assert head.environment == other.environment
    assert {name: value for name, value in head.environment.items() if "{" in value} == {
        "GLOO_SOCKET_IFNAME": "{node.interface}",
        "NCCL_IB_HCA": "{node.rdma_devices}",
        "NCCL_SOCKET_IFNAME": "{node.interface}",
        "VLLM_HOST_IP": "{node.address}",
    }
    assert head.peer_traffic and PeerPort(rank=0, port=18000, purpose="rendezvous", callers=(1,)) in head.peer_ports


def test_sglang_joins_its_hosts_itself() -> None:
    head, other = planned("8x H100 80GB HBM3", 2, {**SGLANG, "join_port": 5000})
    assert head.command[-6:] == ("--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "{node0.address}:5000")
    assert without(head, "--node-rank") == without(other, "--node-rank")
    assert head.environment["SGLANG_HOST_IP"] == "{node.address}"
    assert (option(head, "--tp-size"), option(head, "--pp-size")) == ("8", "2")


def test_on_ray_the_head_alone_runs_the_engine() -> None:
    head, *others = planned(f"2x {PRO_6000}", 3, {"checkpoint": FP8, "engine": "vllm", "across_hosts": "ray"})
    assert head.command[-2:] == ("--distributed-executor-backend", "ray")
    assert [plan.command for plan in others] == [(), ()]
    assert all(plan.environment == head.environment and plan.checkpoint == head.checkpoint for plan in others)
    assert head.environment["RAY_ADDRESS"] == "{node0.address}:18000"
    assert head.peer_ports == (PeerPort(rank=0, port=18000, purpose="ray", callers=(1, 2)),)


def test_llama_cpp_s_other_hosts_lend_their_gpus_and_hold_no_files() -> None:
    head, other = planned("2x RTX 3090", 2, GGUF)
    assert other.command == ("bin/ggml-rpc-server", "--host", "{node.address}", "--port", "18000")
    assert option(head, "--rpc") == "{node1.address}:18000"
    assert head.checkpoint is not None and other.checkpoint is None
    # b11434 puts RPC devices before its own: the last share, with the output, is the head's second card.
    shares = [int(part) for part in option(head, "--tensor-split").split(",")]
    assert sum(shares) == 62 + 1
    alone = served("4x RTX 3090", GGUF)
    assert [*other.memory, *head.memory] == [row.model_copy(update={"gpu": row.gpu % 2}) for row in alone.memory]
    assert tuple(shares) == alone.tensor_split
    assert not head.peer_traffic
    assert PeerPort(rank=1, port=18000, purpose="rpc", callers=(0,)) in head.peer_ports
    assert "rpc-no-authentication" in {finding.rule for finding in head.warnings}


def test_three_hosts_without_gpus_share_the_layers_of_a_gguf() -> None:
    head, *others = planned([], 3, {**SMALL, "engine": "llama.cpp"})
    assert option(head, "--n-gpu-layers") == "21"
    assert option(head, "--tensor-split") == "10,11"
    assert option(head, "--rpc") == "{node1.address}:18000,{node2.address}:18000"
    assert [plan.command[0] for plan in others] == ["bin/ggml-rpc-server"] * 2
    alone = planned([], 1, {**SMALL, "engine": "llama.cpp"})[0]
    assert alone.host_memory_mib is not None
    for plan in (head, *others):
        assert plan.host_memory_mib is not None and 300 < plan.host_memory_mib < alone.host_memory_mib


def test_only_a_build_for_several_hosts_has_rpc() -> None:
    over_hosts, alone = (planned("4x RTX 3090", hosts, GGUF)[0].build for hosts in (2, 1))
    assert over_hosts is not None and alone is not None
    assert set(over_hosts.flags) - set(alone.flags) == {"-DGGML_RPC=ON", "-DGGML_RPC_RDMA=OFF"}
    assert set(over_hosts.targets) - set(alone.targets) == {"ggml-rpc-server"}
    assert over_hosts != alone
    assert planned("4x RTX 3090", 2, GGUF)[1].build == over_hosts


def test_every_host_of_a_service_has_the_same_build() -> None:
    """There is no host on another engine version: the lock is one, and so is the decision."""
    for plans in (planned("4x RTX 3090", 2, VLLM), planned("2x RTX 3090", 3, GGUF)):
        assert len({plan.build.model_dump_json() for plan in plans if plan.build}) == 1


REFUSED: dict[str, tuple[object, int, dict[str, Any], tuple[str, str, str]]] = {
    "ranks that hosts cannot share": (
        "4x H200",
        2,
        {**VLLM, "tensor_parallel": 1, "pipeline_parallel": 3},
        (
            "world-size",
            "tensor 1 x pipeline 3 x data 1 are 3 ranks, which cannot be divided evenly among 2 hosts",
            "choose sizes whose product is a multiple of 2 (rig.hosts_per_service)",
        ),
    ),
    "a group that ends in the middle of a host": (
        "6x H200",
        2,
        {**VLLM, "tensor_parallel": 4, "pipeline_parallel": 3},
        (
            "world-size",
            "tensor 4 x pipeline 3 x data 1 put 6 ranks on each of 2 hosts: a tensor parallel group of 4 would be "
            "split across part of a host",
            "choose a tensor_parallel that divides the number of GPUs used on a host, or is a multiple of it",
        ),
    ),
    "more ranks than GPUs": (
        "2x H200",
        2,
        {**VLLM, "tensor_parallel": 8},
        (
            "gpu-count",
            "tensor 8 x pipeline 1 x data 1 need 8 GPUs, but the service has 4",
            "use smaller sizes or a rig with more GPUs",
        ),
    ),
    "heads": (
        "3x H200",
        2,
        {**VLLM, "tensor_parallel": 6},
        (
            "tensor-parallel-heads",
            "tensor_parallel 6 does not divide 48 attention heads and 8 KV heads",
            "choose tensor_parallel from 1, 2, 4, 8, 16; for other numbers of GPUs use pipeline_parallel or llama.cpp",
        ),
    ),
    "blocks of 128 over sixteen": (
        "8x H200",
        2,
        {"checkpoint": FP8, "engine": "vllm", "tensor_parallel": 16, "expert_parallel": False},
        (
            "fp8-block",
            "the experts' width per GPU, 1536/16 = 96, is not a multiple of the FP8 block size 128",
            "set expert_parallel to True: each GPU then holds whole experts of width 1536",
        ),
    ),
    "more stages than layers": (
        "8x H200",
        8,
        {**VLLM, "tensor_parallel": 1, "pipeline_parallel": 64},
        (
            "pipeline-stages",
            "64 pipeline stages are more than the 62 layers of MiniMax-M2.5",
            "use a pipeline_parallel no larger than the number of layers",
        ),
    ),
    "more GPUs than layers": (
        "1x H200",
        64,
        VLLM,
        (
            "pipeline-stages",
            "64 pipeline stages are more than the 62 layers of MiniMax-M2.5",
            "use fewer hosts or GPUs, or set the sizes yourself",
        ),
    ),
    "more devices than layers": (
        "8x H200",
        8,
        GGUF,
        (
            "pipeline-stages",
            "8 hosts have more devices than MiniMax-M2.5 has layers (62)",
            "use fewer hosts: rig.hosts_per_service",
        ),
    ),
    "data parallel": (
        "4x H200",
        2,
        {**VLLM, "data_parallel": 2, "tensor_parallel": 4},
        (
            "data-parallel-hosts",
            "rigup does not plan data_parallel 2 across 2 hosts",
            "leave data_parallel out, or let each host serve its own replica: rig.hosts_per_service = 1",
        ),
    ),
    "cards of one host": (
        "2x H200",
        2,
        {**VLLM, "gpus": ["GPU-5a1b2c3d-0000-1111-2222-333344445555"]},
        (
            "gpu-uuid-hosts",
            "GPU-5a1b2c3d-0000-1111-2222-333344445555 is a GPU of one host, but the service spans 2 hosts",
            "use indices",
        ),
    ),
    "an image": (
        "4x H200",
        2,
        {**VLLM, "build": "image"},
        (
            "image-across-hosts",
            "rigup does not plan vLLM 0.33.0 from an image across 2 hosts",
            NO_IMAGE.format("wheel"),
        ),
    ),
    "SGLang on Ray": (
        "4x H200",
        2,
        {**VLLM, "engine": "sglang", "across_hosts": "ray"},
        ("ray-engine", "SGLang 0.5.23 does not run on Ray", 'set across_hosts to "engine", or engine to "vllm"'),
    ),
    "the engine's own option": (
        "4x H200",
        2,
        {**VLLM, "flags": {"--nnodes": 2}},
        ("joining-option", "--nnodes is decided by the plan", "set rig.hosts_per_service instead"),
    ),
    "the engine's executor": (
        "4x H200",
        2,
        {**VLLM, "flags": {"--distributed-executor-backend": "ray"}},
        ("joining-option", "--distributed-executor-backend is decided by the plan", "set across_hosts instead"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_on_every_host(case: str) -> None:
    gpus, hosts, service, expected = REFUSED[case]
    assert expected in refusals(gpus, hosts, service)


def test_the_engine_s_own_executor_is_the_user_s_choice_on_one_host() -> None:
    plan = planned("4x H200", 1, {**VLLM, "flags": {"--distributed-executor-backend": "mp"}})[0]
    assert (plan.verdict, plan.nodes, plan.peer_ports) == ("ok", (), ())


def test_a_refusal_for_want_of_memory_says_how_many_such_hosts_would_do() -> None:
    (plan,) = planned("1x H200", 1, {"checkpoint": FP8, "context": 4096}, host_memory_gib=16)
    assert plan.verdict == "refused"
    (finding,) = plan.refusals
    said = "; or serve it over 2 such hosts (rig.hosts_per_service = 2) to fit FP8 on vLLM PP2 with 4,096 tokens"
    assert said in finding.hint
    assert planned("1x H200", 2, {"checkpoint": FP8, "context": 4096}, host_memory_gib=16)[0].verdict == "ok"


WARNED: dict[str, tuple[object, dict[str, Any], str, str, str]] = {
    "graphs": (
        "4x H200",
        {**VLLM, "tensor_parallel": 8},
        "graphs-across-hosts",
        "CUDA graphs whose collectives cross the network have hung after a few requests with NCCL 2.28.9",
        'set flags {"--enforce-eager": True}, or make sure that the build has NCCL 2.30.4 or later',
    ),
    "tensor": (
        "4x H200",
        {**VLLM, "tensor_parallel": 8, "flags": {"--enforce-eager": True}},
        "tensor-across-hosts",
        "tensor parallel 8 spans hosts: every layer waits twice for the network, which is slow without RDMA (RoCE or "
        "InfiniBand: only a probe can tell)",
        "consider pipeline_parallel 2, which crosses the network once per stage",
    ),
    "a release that fails": (
        "4x H200",
        {**VLLM, "version": "0.18.0"},
        "pipeline-across-hosts",
        "vLLM 0.18.0 has failed as a pipeline across hosts",
        "use a later version",
    ),
    "memory that is the host's": (
        "1x GB10",
        VLLM,
        "unified-memory-hosts",
        "vLLM takes 0.90 of the memory that it shares with the host; the head of two DGX Sparks has run out of "
        "memory after hours",
        'set flags {"--gpu-memory-utilization": 0.8} or less',
    ),
    "a port of two devices": (
        "1x GB10",
        VLLM,
        "rdma-twins",
        "each network port of these hosts is two RDMA devices, but NCCL uses only the one with the address: half of "
        "the bandwidth",
        'name both as ibdev2netdev shows them: environment {"NCCL_IB_HCA": "=rocep1s0f1,roceP2p1s0f1"}',
    ),
    "the estimate": (
        "4x H200",
        VLLM,
        "network-not-counted",
        "the speed estimate does not include the network between 2 hosts",
        "",
    ),
}


@pytest.mark.parametrize("case", WARNED)
def test_what_is_to_be_known_of_several_hosts(case: str) -> None:
    gpus, service, rule, message, hint = WARNED[case]
    for plan in planned(gpus, 2, service, host_memory_gib=119):
        (found,) = (finding for finding in plan.warnings if finding.rule == rule)
        assert (found.message, found.hint) == (message, hint) and found.source


def test_what_is_said_of_several_hosts_has_no_effect_on_one() -> None:
    (plan,) = planned("4x H200", 1, {**VLLM, "across_hosts": "ray", "join_port": 5000})
    assert "ray" not in plan.command and not plan.on_ray
    assert [finding.message for finding in plan.warnings if finding.rule == "one-host"] == [
        "across_hosts has no effect on a service of one host",
        "join_port has no effect on a service of one host",
    ]


def test_warnings_that_are_heeded_are_not_given() -> None:
    heeded = {
        **VLLM,
        "tensor_parallel": 2,
        "flags": {"--enforce-eager": True, "--gpu-memory-utilization": 0.8},
        "environment": {"NCCL_IB_HCA": "=a,b"},
    }
    plan = planned("1x GB10", 2, heeded, host_memory_gib=119)[1]
    rules = {finding.rule for finding in plan.warnings}
    assert not rules & {"graphs-across-hosts", "unified-memory-hosts", "rdma-twins", "pipeline-across-hosts"}
    assert plan.environment["NCCL_IB_HCA"] == "=a,b"


def test_a_host_needs_the_memory_that_its_own_gpu_takes_of_it() -> None:
    """Two GB10 hold a model together that neither holds alone; what one declares is its own, not both's."""
    both = planned("1x GB10", 2, {**VLLM, "tensor_parallel": 2}, host_memory_gib=119)
    assert [row.capacity_mib for plan in both for row in plan.memory] == [119 * 1024] * 2
    small = refusals("1x GB10", 2, {**VLLM, "tensor_parallel": 2}, host_memory_gib=64)
    assert small[0][0] == "gpu-memory"


RIGS = st.tuples(st.sampled_from(["RTX 3090", "H200", PRO_6000, "GB10"]), st.integers(1, 4), st.integers(2, 4))
SERVICES = st.fixed_dictionaries(
    {"context": st.sampled_from([1024, 32768]), "offload": st.just("none")},
    optional={
        "engine": st.sampled_from(["vllm", "sglang", "llama.cpp"]),
        "tensor_parallel": st.integers(1, 8),
        "pipeline_parallel": st.integers(1, 4),
        "across_hosts": st.sampled_from(["engine", "ray"]),
        "port": st.integers(1024, 50000),
    },
)
SUBJECTS = st.sampled_from([{"model": "SmolLM2-135M-Instruct"}, {"model": "MiniMax-M2.5"}, {"checkpoint": NVFP4}])


@given(RIGS, SERVICES, SUBJECTS)
def test_whatever_is_planned_over_hosts(
    rig: tuple[str, int, int], rest: dict[str, Any], subject: dict[str, str]
) -> None:
    name, gpus, hosts = rig
    plans = planned(f"{gpus}x {name}", hosts, {**subject, **rest}, host_memory_gib=119)
    if plans[0].verdict == "refused":
        assert {plan.refusals for plan in plans} == {plans[0].refusals} and plans[0].refusals
        return
    assert [plan.rank for plan in plans] == list(range(hosts))
    assert all(tuple(node.host for node in plan.nodes) == tuple(p.host for p in plans) for plan in plans)
    check_memory(plans)
    check_words(plans)


def check_memory(plans: tuple[Plan, ...]) -> None:
    """Every host uses as many GPUs as any other, none more than it has, and together they hold all tensors."""
    rows = [row for plan in plans for row in plan.memory]
    assert len({len(plan.memory) for plan in plans}) == 1
    for row in rows:
        assert row.weights_mib + row.kv_cache_mib + row.overhead_mib + row.free_mib == row.capacity_mib
        assert row.free_mib >= 0
    checkpoint = plans[0].checkpoint
    assert checkpoint is not None
    on_host = 0.7 if plans[0].build and plans[0].build.engine == "llama.cpp" else 1.0  # the embeddings are not on GPUs
    entry = next(e for e in catalogue().checkpoints if (e.repo, e.quant) == (checkpoint.repo, checkpoint.quant))
    tensors = entry.tensors.total if entry.tensors else checkpoint.bytes  # files may have more than is loaded
    assert sum(row.weights_mib for row in rows) * 2**20 >= on_host * min(checkpoint.bytes, tensors)
    parallel = plans[0].parallel
    assert parallel is not None
    if plans[0].build and plans[0].build.engine != "llama.cpp":
        assert parallel.tensor * parallel.pipeline * parallel.data == len(rows)


def check_words(plans: tuple[Plan, ...]) -> None:
    """Addresses of all are replaced, and the commands of hosts that run the engine differ in their ranks alone."""
    run = bound(plans)
    text = " ".join(word for plan in run for word in (*plan.command, *plan.environment.values()))
    assert "{node" not in text
    engines = [plan for plan in plans if plan.command[:1] == plans[0].command[:1]]
    if len(engines) == len(plans):
        assert len({without(plan, "--node-rank", "--headless") for plan in plans}) == 1
        assert [option(plan, "--node-rank") for plan in plans] == [str(plan.rank) for plan in plans]
    callers = {(port.rank, caller) for port in plans[0].peer_ports for caller in port.callers}
    assert all(rank != caller for rank, caller in callers)
    assert {plan.peer_ports for plan in plans} == {plans[0].peer_ports}


def without(plan: Plan, *names: str) -> tuple[str, ...]:
    """A command less some options and their values; a switch has none."""
    kept, skip = [], False
    for word in plan.command:
        if word in names:
            skip = word != "--headless"
        elif skip:
            skip = False
        else:
            kept.append(word)
    return tuple(kept)


def test_as_many_hosts_as_the_rig_says() -> None:
    rig = read_rig({"gpus": [], "hosts_per_service": 2}, "f", catalogue())
    (service,) = read_services({"chat": SMALL}, "f", rig)
    with pytest.raises(ValueError) as caught:
        plan_service("one", "g", rig, service, catalogue(), Lock())
    assert str(caught.value) == "1 hosts, but a service of this rig spans 2"
