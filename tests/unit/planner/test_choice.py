"""The choice that an expert would make, with no more said than the model: each of these was a loss of 2x to 10x."""

from __future__ import annotations

import pytest

from rigup.planner.choice import ranked, with_largest_context
from rigup.planner.memory.overhead import MARGIN_MIB
from rigup.planner.speed import decode_speed
from rigup.planner.survey import survey
from tests.unit.planner.asking import FP8, PRO_6000, decided, refused, request, served

M2_5 = {"model": "MiniMax-M2.5"}
LLAMA = {**M2_5, "engine": "llama.cpp"}


def middle(gpus: object, service: dict[str, object], host: float | None = None) -> float:
    """Tokens a second of what is served, the middle of the estimate."""
    speed = decode_speed(served(gpus, service, host))
    return float((speed.low * speed.high) ** 0.5)


def test_how_much_is_offloaded_counts_before_bits_a_weight() -> None:
    assert served("4x H100 80GB HBM3", {"model": "MiniMax-M3"}, 2048).checkpoint.quant == "NVFP4"
    found = served("4x H100 80GB HBM3", {"model": "MiniMax-M3", "quant": "MXFP8"}, 2048)
    finer = served("4x H100 80GB HBM3", {"model": "MiniMax-M3", "quant": "BF16", "engine": "vllm"}, 2048)
    assert decode_speed(found).low > 3 * decode_speed(finer).low


def test_less_offload_is_not_a_reason_for_a_poor_mix() -> None:
    """Two cards of 24 GB and 192 GiB: the smallest mix would leave least on the host, in 2 bits."""
    found = served("2x RTX 3090", M2_5, 192)
    assert found.checkpoint.quant == "IQ4_XS"
    assert 40 < found.cpu_moe_layers < 50


@pytest.mark.parametrize(
    ("gpus", "engine", "quants"),
    [
        ("8x RTX 3090", "vllm", ("AWQ-INT4-g32", "AWQ-INT4-g128")),
    ],
)
def test_twice_the_speed_at_the_same_level_of_quality_wins(gpus: str, engine: str, quants: tuple[str, ...]) -> None:
    plan = decided(gpus, M2_5, 256)
    assert plan.build is not None and plan.checkpoint is not None
    assert (plan.build.engine, plan.quality) == (engine, "near")
    assert plan.checkpoint.quant in quants
    at = {"context": 32_768}
    assert middle(gpus, {**M2_5, **at}, 256) > 1.25 * middle(gpus, {**LLAMA, **at, "prefer": "quality"}, 256)


def test_four_bits_that_the_cards_compute_in_come_before_the_speed_of_one_request() -> None:
    """Prompts and several requests gain by them: llama.cpp is estimated to be as fast for one."""
    plan = decided(f"2x {PRO_6000}", M2_5, 256)
    assert plan.build is not None and plan.checkpoint is not None
    assert (plan.build.engine, plan.checkpoint.quant, plan.quality) == ("vllm", "NVFP4", "near")


def test_a_format_that_the_cards_compute_in_comes_before_one_that_is_converted() -> None:
    """NVFP4 has a quarter of a bit more, and gains no speed on cards of before Blackwell."""
    order = [score.candidate.checkpoint.scheme for score in ranked(survey(request("8x RTX 3090", M2_5)).fitting)]
    assert order.index("int4_g32") < order.index("nvfp4")


def test_a_level_of_quality_comes_before_speed() -> None:
    """FP8 is what the maker publishes; NVFP4 reads less for a token."""
    plan = decided(f"4x {PRO_6000}", M2_5, 256)
    assert plan.checkpoint is not None and (plan.checkpoint.quant, plan.quality) == ("FP8", "lossless")


@pytest.mark.parametrize(
    ("gpus", "model"),
    [
        ("8x H100 80GB HBM3", "Qwen3.5-397B-A17B"),
        ("4x H100 80GB HBM3", "Qwen3-235B-A22B-Instruct-2507"),
        ("4x RTX PRO 6000 Blackwell Server Edition", "Qwen3-235B-A22B-Instruct-2507"),
    ],
)
def test_a_makers_fp8_comes_before_a_larger_mix_of_llama_cpp(gpus: str, model: str) -> None:
    plan = decided(gpus, {"model": model}, 1024)
    assert plan.build is not None and plan.checkpoint is not None
    assert (plan.checkpoint.repo, plan.quality) == (f"Qwen/{model}-FP8", "lossless")
    # SGLang's package has a tuned kernel for one of these shapes.
    assert plan.build.engine in ("vllm", "sglang")


def test_among_degraded_mixes_every_bit_counts() -> None:
    assert served("4x RTX 3090", M2_5).checkpoint.quant == "Q2_K"


def test_a_better_level_may_take_half_the_speed_and_no_more() -> None:
    """Owners of eight RTX 3090 keep a few layers' experts of a 4-bit mix on the host (llama.cpp#24608)."""
    asked = {"model": "Qwen3.5-397B-A17B"}
    few, most = served("8x RTX 3090", asked, 256), served("6x RTX 3090", asked, 256)
    assert (few.checkpoint.quant, few.cpu_moe_layers) == ("UD-IQ4_XS", 5)
    assert (most.checkpoint.quant, most.cpu_moe_layers) == ("UD-IQ2_M", 0)


def test_weights_that_cross_pcie_at_a_token_a_second_are_not_offered() -> None:
    asked = {"model": "Llama-3.3-70B-Instruct"}
    (finding, *_) = refused("1x RTX 3090", asked, 128).refusals
    assert finding.rule == "gpu-memory"
    named = {"checkpoint": "nvidia/Llama-3.3-70B-Instruct-FP8", "engine": "vllm"}
    assert served("1x RTX 3090", named, 128).cpu_offload_gib > 0


def test_eight_bits_of_cache_come_before_a_bit_a_weight() -> None:
    """131,072 tokens on six cards: UD-IQ3_XXS would leave the cache whole."""
    found = served("6x RTX 3090", {**M2_5, "context": 131_072}, 64)
    assert (found.checkpoint.quant, found.kv_cache_type) == ("UD-Q3_K_XL", "q8_0")


def test_a_whole_cache_comes_before_half_of_one_where_both_fit() -> None:
    assert served(f"2x {PRO_6000}", {**M2_5, "context": 32_768}, 128).kv_cache_type == "bf16"


@pytest.mark.parametrize(
    ("prefer", "quant", "engine"), [("quality", "Q5_K_M", "llama.cpp"), ("speed", "AWQ-INT4-g32", "vllm")]
)
def test_a_preference_turns_the_choice(prefer: str, quant: str, engine: str) -> None:
    found = served("8x RTX 3090", {**M2_5, "prefer": prefer}, 128)
    assert (found.checkpoint.quant, found.engine.name) == (quant, engine)


def test_a_preference_for_context_takes_what_holds_most() -> None:
    usual, longest = served("8x RTX 3090", M2_5, 128), served("8x RTX 3090", {**M2_5, "prefer": "context"}, 128)
    assert usual.context < longest.context == 196_608


def test_no_preference_takes_a_degraded_mix_where_another_fits() -> None:
    for prefer in ("quality", "speed", "context"):
        assert decided("5x RTX 3090", {**M2_5, "prefer": prefer}, 64).quality == "good"


def test_the_plan_says_what_it_traded() -> None:
    plan = decided("8x RTX 3090", M2_5, 128)
    assert plan.traded == (
        "Q5_K_M on llama.cpp has 0.9 bits a weight more (near, 1.7 times slower): "
        'prefer = "quality" takes the most bits',
    )
    (turned,) = decided("8x RTX 3090", {**M2_5, "prefer": "quality"}, 128).traded
    assert turned.startswith("AWQ-INT4-g128 on vLLM is estimated to be 1.7 times as fast (near)")
    assert decided("8x H200", {"checkpoint": FP8, "engine": "vllm"}).traded == ()


def test_the_largest_context_is_the_one_that_fits_when_it_is_asked_for() -> None:
    """Two H200 said 86,016 tokens, and took 196,608 when they were asked for."""
    found = served("2x H200", M2_5, 512)
    assert (found.checkpoint.quant, found.context) == ("FP8", 196_608)
    assert found.margin_mib is not None and found.margin_mib >= MARGIN_MIB


@pytest.mark.parametrize("gpus", ["2x H200", f"2x {PRO_6000}", "8x RTX 3090", "4x RTX 6000 Ada", "GB10"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_no_longer_context_fits_than_the_one_that_is_picked(gpus: str, engine: str) -> None:
    asked = {**M2_5, "engine": engine}
    if decided(gpus, asked, 119).verdict == "refused":
        return
    found = served(gpus, asked, 119)
    longest = with_largest_context(found)
    assert longest is not None and longest.context == found.context
    if found.context + 1024 <= found.model.context:
        longer = decided(
            gpus,
            {**asked, "checkpoint": found.checkpoint.repo, "quant": found.checkpoint.quant}
            | {"context": found.context + 1024, "kv_cache_type": found.kv_cache_type, "offload": "none"}
            | ({"tensor_parallel": found.parallel.tensor} if engine != "llama.cpp" else {}),
            119,
        )
        assert longer.verdict == "refused" or "memory-margin" in {each.rule for each in longer.warnings}


def test_layers_are_shared_out_evenly() -> None:
    """Twelve cards: ten were left with 1 GiB and two with 17."""
    free = [gpu.free_mib for gpu in decided("12x RTX 3090", {**LLAMA, "context": 131_072}, 128).memory]
    layer = 3 * 1024 + 512
    assert len(free) == 12
    assert max(free) - min(free) < 2 * layer


def test_idle_cards_are_said() -> None:
    small = {"model": "gpt-oss-20b", "engine": "llama.cpp"}
    (warning,) = (each for each in decided("12x RTX 3090", small, 128).warnings if each.rule == "idle-gpus")
    assert warning.message == "GPUs 1-11 are idle: the service uses 1 of 12"
    (warning,) = (each for each in decided(f"5x {PRO_6000}", M2_5, 512).warnings if each.rule == "idle-gpus")
    assert warning.message == "GPU 4 is idle: the service uses 4 of 5"
    for service in (M2_5, {**M2_5, "gpus": [0, 1]}):
        gpus = f"2x {PRO_6000}" if service is M2_5 else f"4x {PRO_6000}"
        assert "idle-gpus" not in {each.rule for each in decided(gpus, service, 512).warnings}


def test_llama_cpp_is_not_said_to_need_a_gpu() -> None:
    (finding,) = refused([], {"model": "DeepSeek-V4.1-Flash", "engine": "llama.cpp"}, 64).refusals
    assert (finding.rule, finding.message) == (
        "engine-checkpoint",
        "no checkpoint of DeepSeek-V4.1-Flash in the catalogue loads in llama.cpp b11434",
    )
    (finding,) = refused([], {"model": "DeepSeek-V4.1-Flash"}, 64).refusals
    assert (finding.rule, finding.message) == (
        "gpu-required",
        "SGLang and vLLM need a GPU and this rig has none",
    )


def test_of_equals_the_one_that_holds_most_context_is_taken() -> None:
    """With all experts on the host, one card does as well as two, but for the cache."""
    asked = {**LLAMA, "quant": "UD-Q4_K_XL", "offload": "experts"}
    one = served("2x RTX 3090", {**asked, "gpus": [0]}, 192)
    assert served("2x RTX 3090", asked, 192).context > one.context
    assert len(served("2x RTX 3090", {**asked, "context": 32_768}, 192).gpu_indices) == 1


def test_an_engine_that_cannot_offload_experts_alone_says_so() -> None:
    asked = {"checkpoint": FP8, "engine": "vllm", "offload": "experts"}
    assert "offload-experts" in {each.rule for each in decided(f"4x {PRO_6000}", asked, 512).warnings}


@pytest.mark.parametrize(("prefer", "quant"), [(None, "IQ4_XS"), ("quality", "Q8_0")])
def test_all_experts_on_the_host_are_as_few_bytes_as_the_level_allows(prefer: str | None, quant: str) -> None:
    """Every token reads them from host memory, so that half the bits are twice the speed."""
    asked = {**M2_5, "offload": "experts", "context": 32_768} | ({"prefer": prefer} if prefer else {})
    assert served("2x RTX 3090", asked, 512).checkpoint.quant == quant


@pytest.mark.parametrize("gpus", [f"2x {PRO_6000}", "12x RTX 3090", "4x RTX 6000 Ada", "2x H200"])
def test_among_the_fastest_of_a_level_the_most_bits_win(gpus: str) -> None:
    """Wherever the fastest lies: there are no fixed steps that two nearly equal speeds could fall on both sides of."""
    order = ranked(survey(request(gpus, {**LLAMA, "context": 32_768}, 256)).fitting)
    level = [score for score in order if score.quality.level == order[0].quality.level]
    fastest = max(score.speed for score in level)
    assert order[0].speed > fastest / 1.1
    assert order[0].bits >= max(score.bits for score in level if score.speed > fastest / 1.1) - 0.125


# What owners of such rigs said in public, May to September 2026, that they run; the address of each stands beside it.
OWNERS = (
    ("1x RTX 3090", 64, "Qwen3.6-35B-A3B", "llama.cpp", ("UD-IQ4_XS", "UD-Q4_K_M", "UD-Q4_K_XL")),  # club-3090#390
    ("2x RTX 3090", 64, "Qwen3.6-27B", "vllm", ("FP8",)),  # club-3090 BENCHMARKS.md
    ("2x RTX 3090", 64, "Qwen3.8-27B", "vllm", ("FP8",)),  # mitchross/talos-argocd-proxmox#1995
    ("4x RTX 3090", 128, "gpt-oss-120b", "vllm", ("MXFP4",)),  # club-3090
    ("8x RTX 3090", 256, "Qwen3.5-397B-A17B", "llama.cpp", ("UD-IQ4_XS",)),  # ggml-org/llama.cpp#24608
    ("1x RTX 5090", 64, "Qwen3.6-35B-A3B", "vllm", ("NVFP4",)),  # club-3090#612
    (f"1x {PRO_6000}", 128, "Qwen3.8-27B", "vllm", ("FP8",)),  # local-inference-lab/rtx6kpro#81
    (f"6x {PRO_6000}", 512, "Qwen3.5-397B-A17B", "vllm", ("FP8",)),  # rtx6kpro#7
    ("2x H200", 512, "Mistral-Small-4-119B-2603", "vllm", ("FP8",)),  # vllm-project/recipes
    ("8x H200", 2000, "GLM-5.3", "vllm", ("FP8",)),  # vllm-project/recipes#893
    ("8x B200", 2000, "DeepSeek-V4-Flash-0731", "vllm", ("FP8",)),  # vllm-project/recipes#762
    ("4x A100-SXM4-80GB", 512, "DeepSeek-V4-Flash-0731", "llama.cpp", ("UD-Q4_K_XL",)),  # vllm#50576: not vLLM
)


@pytest.mark.parametrize(("gpus", "host", "model", "engine", "quants"), OWNERS)
def test_the_choice_is_what_owners_run(gpus: str, host: int, model: str, engine: str, quants: tuple[str, ...]) -> None:
    found = served(gpus, {"model": model}, host)
    assert found.engine.name == engine
    assert found.checkpoint.quant in quants


def test_eight_cards_serve_the_makers_fp8_on_all_of_them() -> None:
    """vllm-project/recipes: vLLM, TP8; SGLang's package has a tuned kernel for this shape on some cards."""
    found = served("8x H100 80GB HBM3", {"model": "Qwen3.5-397B-A17B"}, 1000)
    assert (found.checkpoint.quant, found.parallel.tensor) == ("FP8", 8)
