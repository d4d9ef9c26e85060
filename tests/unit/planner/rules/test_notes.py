"""What a user should know before serving."""

from __future__ import annotations

import pytest

from rigup.planner.rules import notes
from tests.unit.planner.asking import decided, served
from tests.unit.planner.rules.builder import MAX_Q, candidate

FP8, GGUF = "MiniMaxAI/MiniMax-M2.5", "unsloth/MiniMax-M2.5-GGUF"


def test_context_beyond_the_models_is_refused() -> None:
    (finding,) = notes.context_limit(candidate("4x B200", FP8, context=1_048_576))
    assert finding.message == "MiniMax-M2.5 supports 196,608 tokens of context, not 1,048,576"
    assert finding.hint == "set context to 196608 or less"
    assert notes.context_limit(candidate("4x B200", FP8, context=196_608)) == ()


def test_a_checkpoint_may_allow_less_context_than_its_model() -> None:
    asked = {"checkpoint": "nvidia/MiniMax-M2.7-NVFP4", "model": "MiniMax-M2.7"}
    assert served("8x H200", asked, 1024).context == 196_608
    (finding,) = decided("8x H200", {**asked, "context": 204_800}, 1024).refusals
    assert finding.message.startswith("nvidia/MiniMax-M2.7-NVFP4 NVFP4 supports 196,608 tokens")


def test_m2_7_is_not_for_commercial_use() -> None:
    (finding,) = notes.licence(candidate("4x B200", "MiniMaxAI/MiniMax-M2.7"))
    assert finding.message.count("MiniMax-M2.7") == 1
    assert notes.licence(candidate("4x B200", FP8)) == ()


def test_code_from_the_hub_is_pointed_out() -> None:
    (finding,) = notes.trust_remote_code(candidate("4x B200", FP8, service={"trust_remote_code": True}))
    assert FP8 in finding.message
    assert notes.trust_remote_code(candidate("4x B200", FP8)) == ()


def test_pruned_experts_are_counted() -> None:
    (finding,) = notes.pruned_experts(candidate("1x B200", "lukealonso/MiniMax-M2.5-REAP-139B-A10B-NVFP4"))
    assert "154 of 256 experts" in finding.message
    assert notes.pruned_experts(candidate("4x B200", FP8)) == ()


def test_experts_in_host_memory_are_said_to_be_slow() -> None:
    asked = candidate("2x RTX 3090", GGUF, "llama.cpp", quant="Q4_K_M", cpu_moe_layers=46)
    (finding,) = notes.host_offload(asked)
    assert "46 of 62 layers" in finding.message
    (finding,) = notes.host_offload(candidate("2x RTX 3090", FP8, cpu_offload_gib=10))
    assert "10 GiB" in finding.message
    assert notes.host_offload(candidate("2x RTX 3090", FP8)) == ()


def test_experts_that_llama_cpp_computes_on_the_processor_are_said_to_be_slow() -> None:
    mistral = "unsloth/Mistral-Small-4-119B-2603-GGUF"
    (finding,) = notes.down_on_processor(candidate("8x H200", mistral, "llama.cpp", quant="Q8_0"))
    assert "down projections of Mistral-Small-4-119B-2603's experts" in finding.message
    assert notes.down_on_processor(candidate("8x H200", GGUF, "llama.cpp", quant="Q8_0")) == ()


@pytest.mark.parametrize(("gpus", "warned"), [(f"4x {MAX_Q}", True), ("4x H100 80GB HBM3", False)])
def test_a_missing_kernel_config_warns_where_the_kernel_is_used(gpus: str, warned: bool) -> None:
    assert bool(notes.untuned_kernel(candidate(gpus, FP8, "sglang", parallel={"tensor": 4}))) is warned
