"""How a model may be cut."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.planner.rules import parallel
from tests.unit.planner.asking import decided, refused
from tests.unit.planner.rules.builder import MAX_Q, PRO_6000, candidate

FP8, NVFP4 = "MiniMaxAI/MiniMax-M2.5", "nvidia/MiniMax-M2.5-NVFP4"
FOUR = {"tensor": 2, "pipeline": 2}
INT4_G32, INT4_G128 = "mratsim/MiniMax-M2.5-BF16-INT4-AWQ", "QuantTrio/MiniMax-M2.5-AWQ"


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_heads_divide_by_powers_of_two(size: int) -> None:
    assert parallel.tensor_parallel_heads(candidate("16x H200", NVFP4, parallel={"tensor": size})) == ()


@pytest.mark.parametrize("size", [3, 5, 6, 7, 12])
def test_other_numbers_of_gpus_are_refused_with_the_sizes_that_work(size: int) -> None:
    (finding,) = parallel.tensor_parallel_heads(candidate("16x H200", NVFP4, parallel={"tensor": size}))
    assert finding.message == f"tensor_parallel {size} does not divide 48 attention heads and 8 KV heads"
    assert "1, 2, 4, 8, 16;" in finding.hint
    assert "pipeline_parallel" in finding.hint


def test_llama_cpp_splits_layers_and_does_not_care_about_heads() -> None:
    three = candidate("3x RTX 3090", "unsloth/MiniMax-M2.5-GGUF", "llama.cpp", quant="UD-IQ2_M")
    assert parallel.tensor_parallel_heads(three) == ()


def test_fp8_blocks_do_not_divide_an_eighth_of_an_expert() -> None:
    (finding,) = parallel.fp8_block(candidate(f"8x {MAX_Q}", FP8, "sglang", parallel={"tensor": 8}))
    assert finding.rule == "fp8-block"
    assert "1536/8 = 192" in finding.message and "128" in finding.message
    assert "expert_parallel" in finding.hint


@pytest.mark.parametrize("sizes", [{"tensor": 4}, {"tensor": 2}, {"tensor": 8, "expert": 8}, {"pipeline": 8}])
def test_fp8_blocks_divide_where_slices_are_wide_enough(sizes: dict[str, int]) -> None:
    assert parallel.fp8_block(candidate(f"8x {MAX_Q}", FP8, parallel=sizes)) == ()


def test_whole_experts_do_not_help_where_the_shared_ones_are_cut() -> None:
    asked = {"model": "Qwen3.6-35B-A3B", "quant": "FP8", "engine": "vllm"}
    (finding,) = decided("8x H200", {**asked, "tensor_parallel": 8, "expert_parallel": True}, 1024).refusals
    assert finding.rule == "fp8-block"
    assert "shared experts' width per GPU, 512/8 = 64," in finding.message
    assert finding.hint == "choose tensor_parallel from 1, 2, 4"
    chosen = decided("8x RTX PRO 6000 Blackwell Server Edition", asked, 1024)
    assert chosen.parallel is not None
    assert chosen.parallel.tensor <= 4


def test_vllm_cuts_experts_over_data_parallel_ranks_too_and_sglang_does_not() -> None:
    sizes = {"tensor": 4, "data": 2}
    assert parallel.fp8_block(candidate(f"8x {PRO_6000}", FP8, "vllm", parallel=sizes))
    assert parallel.fp8_block(candidate(f"8x {PRO_6000}", FP8, "sglang", parallel=sizes)) == ()


def test_int4_groups_of_32_divide_at_eight_and_groups_of_128_do_not() -> None:
    assert parallel.int4_group(candidate("8x RTX 3090", INT4_G32, parallel={"tensor": 8})) == ()
    (finding,) = parallel.int4_group(candidate("8x RTX 3090", INT4_G128, parallel={"tensor": 8}))
    assert finding.message == "the experts' width per GPU, 1536/8 = 192, does not divide into INT4 groups of 128"


def test_sglang_wants_much_the_same_memory_on_all_gpus_that_share_a_layer() -> None:
    unequal = ["3x RTX 6000 Ada", "1x RTX 3090"]
    (finding,) = parallel.sglang_unequal_memory(candidate(unequal, INT4_G32, "sglang", parallel=FOUR))
    assert finding.message == (
        "SGLang refuses to start with tensor parallelism across GPUs this unequal (24,576 and 49,140 MiB): each must "
        "have at least 90% of the largest"
    )
    assert '{"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}' in finding.hint


@pytest.mark.parametrize(
    ("gpus", "engine", "sizes", "environment"),
    [
        (["2x L40S", "2x RTX 6000 Ada"], "sglang", FOUR, {}),
        (["3x RTX 6000 Ada", "1x RTX 3090"], "vllm", FOUR, {}),
        (["3x RTX 6000 Ada", "1x RTX 3090"], "sglang", {"pipeline": 4}, {}),
        (["3x RTX 6000 Ada", "1x RTX 3090"], "sglang", FOUR, {parallel.BALANCE_CHECK: "False"}),
    ],
    ids=["nearly equal", "vllm", "stages", "switched off"],
)
def test_what_it_does_not_mind(
    gpus: list[str], engine: str, sizes: dict[str, int], environment: dict[str, str]
) -> None:
    made = candidate(gpus, INT4_G32, engine, parallel=sizes, service={"environment": environment})
    assert parallel.sglang_unequal_memory(made) == ()


def test_nvfp4_with_expert_parallelism_warns_on_sm120_only() -> None:
    sizes = {"tensor": 2, "expert": 2}
    assert parallel.nvfp4_expert_parallel(candidate(f"2x {PRO_6000}", NVFP4, parallel=sizes))
    assert parallel.nvfp4_expert_parallel(candidate("2x B200", NVFP4, parallel=sizes)) == ()
    assert parallel.nvfp4_expert_parallel(candidate(f"2x {PRO_6000}", NVFP4, parallel={"tensor": 2})) == ()


def test_llama_cpp_cuts_layers_only_where_it_is_asked_by_name() -> None:
    asked = {"model": "Llama-3.3-70B-Instruct", "quant": "Q4_K_M", "engine": "llama.cpp", "tensor_parallel": 4}
    words = " ".join(decided("4x RTX 3090", asked).command)
    assert "--split-mode tensor" in words and "--tensor-split" not in words
    assert "--split-mode layer" in " ".join(decided("4x RTX 3090", {**asked, "tensor_parallel": 1}).command)
    unnamed = {"checkpoint": "unsloth/Llama-3.3-70B-Instruct-GGUF", "quant": "Q4_K_M", "tensor_parallel": 4}
    (hint,) = (each.hint for each in refused("4x RTX 3090", unnamed).refusals if each.rule == "llama-sizes")
    assert hint.startswith("set engine to llama.cpp, ")
    assert "--split-mode tensor" in " ".join(decided("4x RTX 3090", {**unnamed, "engine": "llama.cpp"}).command)


@pytest.mark.parametrize(
    ("gpus", "more", "said"),
    [
        ("2x RTX 3090", {}, "needs 4 GPUs"),
        ("4x RTX 3090", {"flags": {"--n-cpu-moe": 8}}, "counted with experts"),
        ("4x RTX 3090", {"offload": "experts"}, "counted with experts"),
        ("4x RTX 3090", {"speculative": "mtp"}, "speculative decoding"),
    ],
)
def test_what_llama_cpp_does_not_do_with_cut_layers_is_refused(gpus: str, more: dict[str, Any], said: str) -> None:
    asked = {"model": "Qwen3.6-35B-A3B", "quant": "Q8_0", "engine": "llama.cpp", "tensor_parallel": 4, **more}
    assert said in next(each.message for each in refused(gpus, asked, 128).refusals if each.rule == "llama-cut-layers")


def test_the_split_mode_is_asked_for_by_tensor_parallel() -> None:
    asked = {"model": "Qwen3.6-35B-A3B", "quant": "Q8_0", "engine": "llama.cpp", "flags": {"--split-mode": "tensor"}}
    (hint,) = (each.hint for each in refused("4x RTX 3090", asked, 128).refusals if each.rule == "decided-option")
    assert "tensor_parallel" in hint
