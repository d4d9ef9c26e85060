"""How a model is spread over GPUs: what the service names, which GPUs of unequal ones, and where experts lie."""

from __future__ import annotations

import pytest

from rigup.plan import Parallel
from tests.unit.planner.across_hosts import planned, refusals
from tests.unit.planner.asking import FP8, NVFP4, PRO_6000, decided, refused, served

TWO_KINDS = [f"2x {PRO_6000}", "2x RTX 3090"]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"pipeline_parallel": 8}, "tensor 1 x pipeline 8 x data 1 need 8 GPUs"),
        ({"data_parallel": 8}, "tensor 1 x pipeline 1 x data 8 need 8 GPUs"),
    ],
)
def test_sizes_that_are_too_large_are_refused_as_that(sizes: dict[str, int], said: str) -> None:
    """Not as a checkpoint that the engine could not load."""
    (finding,) = refused(f"4x {PRO_6000}", {"checkpoint": FP8, "engine": "vllm", **sizes}).refusals
    assert finding.rule == "gpu-count" and finding.message.startswith(said)


def test_sizes_that_are_too_large_over_hosts_are_refused_as_that() -> None:
    found = refusals("4x H200", 2, {"checkpoint": FP8, "engine": "vllm", "data_parallel": 9})
    assert [rule for rule, *_ in found] == ["world-size"]


def test_experts_of_sglang_are_spread_over_the_ranks_of_a_replica() -> None:
    """SGLang's moe_tp_size is tp_size // ep_size: 2 // 4 would be 0. vLLM spreads them over its replicas as well."""
    sizes = {"tensor_parallel": 2, "data_parallel": 2, "expert_parallel": True}
    sglang = decided(f"4x {PRO_6000}", {"checkpoint": NVFP4, "engine": "sglang", **sizes})
    assert sglang.parallel == Parallel(tensor=2, data=2, expert=2)
    vllm = decided(f"4x {PRO_6000}", {"checkpoint": NVFP4, "engine": "vllm", **sizes})
    assert vllm.parallel == Parallel(tensor=2, data=2, expert=4)


def test_the_large_cards_of_two_kinds_are_tried_by_themselves() -> None:
    found = served(TWO_KINDS, {"checkpoint": NVFP4, "engine": "vllm"})
    assert (found.parallel, found.gpu_indices) == (Parallel(tensor=2), (0, 1))
    assert [gpu.compute_capability for gpu in found.gpus] == ["12.0", "12.0"]


def test_the_large_cards_are_found_wherever_they_are() -> None:
    found = served(TWO_KINDS[::-1], {"checkpoint": NVFP4, "engine": "vllm"})
    assert (found.parallel, found.gpu_indices) == (Parallel(tensor=2), (2, 3))
    plan = decided(TWO_KINDS[::-1], {"checkpoint": NVFP4, "engine": "vllm"})
    assert [row.gpu for row in plan.memory] == [2, 3]


def test_gpus_that_the_service_names_are_all_used() -> None:
    asked = {"checkpoint": NVFP4, "engine": "vllm", "gpus": [0, 1, 2, 3], "context": 4096}
    assert served(TWO_KINDS, {**asked, "tensor_parallel": 2}).gpu_indices == (0, 1, 2, 3)


def test_two_dgx_sparks_share_each_layer() -> None:
    asked = {"checkpoint": NVFP4, "engine": "vllm"}
    plan = planned("1x GB10", 2, asked, host_memory_gib=119)[0]
    assert plan.parallel == Parallel(tensor=2)
    assert "pipeline-across-hosts" not in {finding.rule for finding in plan.warnings}


def test_a_pipeline_over_two_dgx_sparks_is_warned_of() -> None:
    asked = {"checkpoint": NVFP4, "engine": "vllm", "pipeline_parallel": 2, "tensor_parallel": 1}
    (found,) = (
        finding
        for finding in planned("1x GB10", 2, asked, host_memory_gib=119)[0].warnings
        if finding.rule == "pipeline-across-hosts"
    )
    assert found.message == (
        "two DGX Sparks have crashed as a two-stage pipeline; when they ran, they were hardly faster than one"
    )
    assert found.hint == "use tensor_parallel 2 if the model can be split that way"
    assert "unslothai/unsloth#10280" in found.source


def test_other_hosts_stay_a_pipeline() -> None:
    assert planned("1x H200", 2, {"checkpoint": FP8, "engine": "vllm"})[0].parallel == Parallel(pipeline=2)


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"tensor_parallel": 2}, "tensor_parallel"),
        ({"pipeline_parallel": 4}, "pipeline_parallel"),
        ({"data_parallel": 2}, "data_parallel"),
        ({"expert_parallel": True}, "expert_parallel"),
    ],
)
def test_sizes_that_llama_cpp_does_not_have_are_refused(sizes: dict[str, int], named: str) -> None:
    (finding,) = refused("4x RTX 3090", {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", **sizes}).refusals
    assert finding.rule == "llama-sizes"
    assert finding.message == (f"rigup does not plan llama.cpp with {named}: it distributes whole layers over the GPUs")
    assert finding.hint == f"leave {named} out, or serve it with vLLM or SGLang"


def test_sizes_of_one_do_not_matter_to_llama_cpp() -> None:
    ones = {"tensor_parallel": 1, "pipeline_parallel": 1, "data_parallel": 1, "expert_parallel": False}
    assert served("4x RTX 3090", {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", **ones}).engine.name == "llama.cpp"


def test_sizes_that_are_named_are_not_dropped_for_an_engine_without() -> None:
    """Q8_0 on one GPU by llama.cpp once came of eight stages on four."""
    (finding,) = refused(f"4x {PRO_6000}", {"model": "MiniMax-M2.5", "pipeline_parallel": 8}).refusals
    assert finding.rule == "gpu-count" and finding.message.startswith("tensor 1 x pipeline 8 x data 1 need 8 GPUs")
