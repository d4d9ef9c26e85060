"""Which experts lie in host memory: all of them where the service says so, and what llama.cpp's own options say."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.planner.memory.weights import weights_of
from rigup.planner.offload import offloaded_bytes, overrides_of
from rigup.service import Service
from tests.unit.planner.asking import decided, refused, served

GPUS, HOST = "2x RTX 3090", 256
ASKED: dict[str, Any] = {"model": "MiniMax-M2.5", "quant": "Q4_K_M", "context": 4096}
EXPERTS = "ffn_.*_exps=CPU"


def with_flags(flags: dict[str, Any]) -> dict[str, Any]:
    return {**ASKED, "engine": "llama.cpp", "flags": flags}


def test_offload_of_experts_means_all_of_them() -> None:
    found = served(GPUS, {**ASKED, "offload": "experts"}, HOST)
    assert (found.engine.name, found.cpu_moe_layers) == ("llama.cpp", 62)
    layers = weights_of(found.checkpoint, found.model).layers
    assert offloaded_bytes(found) == pytest.approx(sum(layer.experts for layer in layers))
    plan = decided(GPUS, {**ASKED, "offload": "experts"}, HOST)
    assert " ".join(plan.command).count("--n-cpu-moe 62") == 1
    assert "all experts are in host memory" in " ".join(each.message for each in plan.warnings)


def test_experts_are_kept_off_gpus_that_would_hold_them() -> None:
    assert served("8x RTX 3090", {**ASKED, "offload": "experts"}, HOST).cpu_moe_layers == 62


def test_a_dense_model_has_no_experts_to_offload() -> None:
    found = served("RTX 3090", {"model": "SmolLM2-135M-Instruct", "offload": "experts"}, 16)
    assert found.cpu_moe_layers == 0


@pytest.mark.parametrize(
    ("flags", "shares"),
    [
        ({"--n-cpu-moe": 50}, (1.0,) * 50 + (0.0,) * 12),
        ({"-ncmoe": "50"}, (1.0,) * 50 + (0.0,) * 12),
        ({"--cpu-moe": True}, (1.0,) * 62),
        ({"-cmoe": True}, (1.0,) * 62),
        ({"--override-tensor": EXPERTS}, (1.0,) * 62),
        ({"-ot": ["blk\\.[0-9]\\.ffn_.*_exps=CPU", "blk\\.[1-5][0-9]\\.ffn_.*_exps=CPU"]}, (1.0,) * 60 + (0.0,) * 2),
        ({"-ot": "ffn_(up|down)_exps=CPU,blk\\.6[01]\\.ffn_gate_exps=CPU"}, (2 / 3,) * 60 + (1.0,) * 2),
        ({"--n-cpu-moe": 40, "-ot": "ffn_up_exps=CPU"}, (1.0,) * 40 + (1 / 3,) * 22),
    ],
)
def test_llama_cpps_own_options_are_obeyed_and_counted(flags: dict[str, Any], shares: tuple[float, ...]) -> None:
    found = served("4x RTX 3090", with_flags(flags), HOST)
    assert found.host_expert_shares == pytest.approx(shares)
    layers = weights_of(found.checkpoint, found.model).layers
    moved = sum(share * layer.experts for share, layer in zip(shares, layers, strict=True))
    assert found.host_memory_mib * 2**20 > moved
    whole = found.checkpoint.bytes - sum(use.weights for use in found.usage)
    assert whole == pytest.approx(moved, rel=0.02)
    words = decided("4x RTX 3090", with_flags(flags), HOST).command
    for name in ("--n-cpu-moe", "-ncmoe"):
        assert words.count(name) == int(name in flags)


def test_fewer_experts_on_the_host_than_fit_are_refused() -> None:
    plan = refused(GPUS, with_flags({"--n-cpu-moe": 3}), HOST)
    assert {finding.rule for finding in plan.refusals} == {"gpu-memory"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"--n-cpu-moe": -1}, "--n-cpu-moe "),
        ({"-ot": "attn_q=CPU"}, "-ot: it moves blk.0.attn_q.weight, and only experts are counted"),
        ({"-ot": ".*=CPU"}, "-ot: it moves blk.0.attn_norm.weight, and only experts are counted"),
        ({"-ot": "exps=CUDA0"}, '-ot: "exps=CUDA0" names the device "CUDA0", and only CPU is counted'),
        ({"-ot": "exps"}, '-ot: "exps" is not a pattern and a device, like "ffn_.*_exps=CPU"'),
        ({"-ot": "no_such_tensor=CPU"}, "-ot: it finds no experts of this model"),
        ({"-ot": "(a+)+exps=CPU"}, '-ot: "(a+)+exps" is too complex a pattern'),
        ({"-ot": True}, '-ot: must be text like "ffn_.*_exps=CPU"'),
        ({"--cpu-moe": 3}, "--cpu-moe takes no value"),
    ],
)
def test_what_cannot_be_counted_is_refused(flags: dict[str, Any], message: str) -> None:
    messages = [finding.message for finding in refused(GPUS, with_flags(flags), HOST).refusals]
    assert any(said.startswith(message) for said in messages), messages


def test_a_pattern_that_is_not_a_regular_expression_is_said() -> None:
    service = Service(name="chat", flags={"-ot": "exps(=CPU"})
    assert overrides_of(service, 4).wrong.startswith('"exps(" is not a regular expression: ')


@pytest.mark.parametrize(
    ("more", "tokens"),
    [
        ({}, 512),
        ({"context": 16_384, "quant": "Q8_0"}, 2048),
        ({"context": 61_440}, 512),
        ({"prefer": "context"}, 512),
        ({"flags": {"--ubatch-size": 1024}}, 1024),
        ({"flags": {"--batch-size": 1024}}, 512),
    ],
)
def test_prompts_are_read_in_larger_steps_where_experts_are_copied_for_each(more: dict[str, Any], tokens: int) -> None:
    """Not where a context that was asked for, or three quarters of one that was not, leave no room for them."""
    asked = {"checkpoint": "unsloth/Qwen3.5-397B-A17B-GGUF", "quant": "Q4_K_M", "engine": "llama.cpp", **more}
    plan = decided("8x RTX 3090", asked, 512)
    words = " ".join(plan.command)
    assert (f"--ubatch-size {tokens}" in words) == (tokens != 512)
    assert ("--batch-size 2048" in words.replace("--ubatch-size", "")) == (tokens == 2048)
    (offload,) = (each.message for each in plan.warnings if each.rule == "host-offload")
    assert ("prompts are read 2,048 tokens" in offload) == (tokens == 2048)
    assert served("8x RTX 3090", asked, 512).cpu_moe_layers == (38 if "quant" in more else 21)


def test_larger_steps_leave_the_context_that_must_fit() -> None:
    """Of 38,912 tokens at 512 three quarters would be 29,184."""
    found = served("2x RTX 3090", {"model": "GLM-4.7", "engine": "llama.cpp"}, 192)
    assert found.context >= 32_768 and found.batched_tokens == 512


def test_steps_stay_small_where_it_is_not_known_what_larger_ones_take() -> None:
    asked = {"model": "DeepSeek-V4-Flash-0731", "engine": "llama.cpp", "context": 131_072, "offload": "experts"}
    plan = decided("1x RTX PRO 6000 Blackwell Workstation Edition", asked, 256)
    assert "--n-cpu-moe" in plan.command and "--ubatch-size" not in plan.command


@pytest.mark.parametrize(("flags", "tokens"), [({}, 2048), ({"--no-op-offload": True}, 512)])
def test_steps_stay_small_where_no_experts_are_copied(flags: dict[str, Any], tokens: int) -> None:
    asked = {"model": "MiniMax-M2.5", "engine": "llama.cpp", "quant": "Q4_K_M", "context": 8192, "flags": flags}
    assert served("2x RTX 3090", {**asked, "offload": "experts"}, 192).batched_tokens == tokens


def test_steps_stay_small_where_no_experts_are_in_host_memory() -> None:
    assert served("8x RTX 3090", {"model": "Qwen3.6-35B-A3B", "engine": "llama.cpp"}, 512).batched_tokens == 512
