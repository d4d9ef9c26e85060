"""What fits by less than the figures may be off is neither chosen by rigup nor left unsaid."""

from __future__ import annotations

import pytest

from rigup.planner.candidate import Candidate
from rigup.planner.choice import with_largest_context
from rigup.planner.memory.overhead import MARGIN_MIB
from tests.unit.planner.asking import AWQ, PRO_6000, REAP, decided, decision, served
from tests.unit.planner.measured import MEMORY, RTX_3090_CARDS_GIB, fullest_gib

# vLLM's log of the verified row: KV cache on a GPU.
KV_GIB = 23.62


def planned_row(what: str) -> Candidate:
    """The measured row whose text begins so, planned as its hosts were."""
    (found,) = (row for row in MEMORY if row.what.startswith(what))
    return served(found.gpus, found.service, 512)


def test_the_margin_covers_what_the_verified_vllm_row_is_off_by() -> None:
    planned = planned_row("the same: tokens")
    too_much = planned.memory[0].kv_cache_mib - KV_GIB * 1024
    assert 0 < too_much < MARGIN_MIB


def test_the_margin_covers_what_the_fullest_card_of_the_llama_cpp_row_is_off_by() -> None:
    planned = planned_row("4x RTX 3090, UD-IQ2_M")
    assert 700 < (max(RTX_3090_CARDS_GIB) - fullest_gib(planned)) * 1024 < MARGIN_MIB


@pytest.mark.parametrize(
    ("gpus", "service"),
    [
        ("4x RTX 6000 Ada", {"model": "MiniMax-M2.5", "engine": "vllm"}),
        ("8x RTX 3090", {"checkpoint": "QuantTrio/MiniMax-M2.5-AWQ", "engine": "vllm"}),
        ("2x A100 80GB PCIe", {"checkpoint": AWQ, "engine": "vllm"}),
        (f"2x {PRO_6000}", {"checkpoint": AWQ, "engine": "sglang"}),
    ],
)
def test_a_context_that_rigup_picks_leaves_the_margin(gpus: str, service: dict[str, str]) -> None:
    """vLLM raises "To serve at least one request with the model's max seq len" where its own figure is the larger."""
    planned = served(gpus, service)
    assert planned.margin_mib is not None and planned.margin_mib >= MARGIN_MIB
    tokens = planned.kv_tokens // planned.parallel.data
    spare = [use.kv_cache * (tokens - planned.context) / tokens for use in planned.usage]
    assert min(spare) >= MARGIN_MIB * 2**20


@pytest.mark.parametrize(
    ("gpus", "service"),
    [
        (["H200", "L40S"], {}),
        (["RTX 6000 Ada"] * 3 + ["RTX 3090"], {}),
        ("5x RTX 3090", {}),
        ([PRO_6000] * 2 + ["RTX 3090"] * 2, {"tensor_parallel": 2, "pipeline_parallel": 2}),
    ],
)
def test_a_stage_with_room_of_its_own_is_not_said_to_be_full(gpus: object, service: dict[str, int]) -> None:
    """Every stage keeps as many tokens as the poorest one, whatever else it has."""
    planned = served(gpus, {"model": "MiniMax-M2.5", "engine": "vllm", **service})
    assert planned.parallel.pipeline > 1
    spare = [
        (use.capacity - planned.runtime.reserve) * planned.memory_fraction
        - use.weights
        - (use.overhead - planned.runtime.reserve)
        - use.kv_cache * planned.context / planned.kv_tokens
        for use in planned.usage
    ]
    assert planned.margin_mib == int(min(spare) // 2**20)
    longer = with_largest_context(planned)
    assert longer is not None and longer.context == planned.context
    assert not planned.is_tight


def test_a_context_that_is_asked_for_and_leaves_less_is_warned_of() -> None:
    asked = {"checkpoint": REAP, "engine": "vllm", "kv_cache_type": "fp8", "flags": {"--gpu-memory-utilization": 0.96}}
    tight = decided(PRO_6000, {**asked, "context": 100_000})
    (finding,) = (found for found in tight.warnings if found.rule == "memory-margin")
    margin = decision(PRO_6000, {**asked, "context": 100_000}).candidate.margin_mib
    assert margin is not None
    assert finding.message == (
        f"only {margin:,} MiB of KV cache to spare, less than the 1,024 MiB error margin of the estimate: the "
        "engine may fail to start"
    )
    roomy = decided(PRO_6000, {**asked, "context": 32_768})
    assert "memory-margin" not in {found.rule for found in roomy.warnings}


def test_llama_cpp_is_warned_of_too() -> None:
    asked = {"model": "MiniMax-M2.5", "quant": "Q3_K_M", "context": 131_072}
    plan = decided("6x RTX 3090", asked)
    assert min(gpu.free_mib for gpu in plan.memory) < MARGIN_MIB
    assert "memory-margin" in {found.rule for found in plan.warnings}


def test_a_checkpoint_with_the_margin_is_preferred_to_a_better_one_without() -> None:
    """Q6_K would leave 536 MiB of each card."""
    plan = decided("4x RTX 6000 Ada", {"model": "MiniMax-M2.5"})
    assert plan.checkpoint is not None and plan.checkpoint.quant == "Q5_K_M"
    assert "memory-margin" not in {found.rule for found in plan.warnings}


def test_more_of_a_gpu_is_given_to_vllm_where_the_default_leaves_no_margin() -> None:
    two = {"checkpoint": AWQ, "engine": "vllm", "tensor_parallel": 2}
    default = served(f"2x {PRO_6000}", two)
    tight = served(f"2x {PRO_6000}", {**two, "context": default.kv_tokens - 1024})
    assert (default.memory_fraction, tight.memory_fraction) == (0.90, 0.95)
    assert not tight.is_tight


@pytest.mark.parametrize("gpus", [["H200", "L40S"], ["RTX 6000 Ada"] * 3 + ["RTX 3090"]])
def test_no_stage_of_sglang_has_a_larger_cache_than_the_fullest_gpu_has_room_for(gpus: list[str]) -> None:
    """Each rank takes the least that any of them has free (0.5.23, get_available_gpu_memory with distributed)."""
    planned = served(gpus, {"model": "MiniMax-M2.5", "engine": "sglang"}, 256)
    assert planned.parallel.pipeline == len(gpus)
    room = min(use.capacity - use.weights - use.overhead for use in planned.usage)
    assert max(use.kv_cache for use in planned.usage) <= room
