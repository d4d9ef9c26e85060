"""What must come out for each example system, whatever the details: verdicts, splits, versions, memory, warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.catalogue.option_names import is_own_variable, known_options, known_variables
from rigup.plan import Plan
from tests.golden.test_example_systems import PLANS

DOCUMENT = Path(__file__).parents[2] / "docs" / "seeds.md"
BY_GROUP = {plan.group: plan for plan in PLANS}
OK = [plan for plan in PLANS if plan.verdict == "ok"]


def planned(group: str) -> Plan:
    plan = BY_GROUP[group]
    assert plan.verdict == "ok", plan.refusals
    return plan


def refusal_rules(group: str) -> set[str]:
    assert BY_GROUP[group].verdict == "refused"
    return {finding.rule for finding in BY_GROUP[group].refusals}


def warning_rules(group: str) -> set[str]:
    return {finding.rule for finding in planned(group).warnings}


def value(plan: Plan, option: str) -> str:
    return plan.command[plan.command.index(option) + 1]


def weights_gib(plan: Plan) -> list[float]:
    return [gpu.weights_mib / 1024 for gpu in plan.memory]


@pytest.mark.parametrize("plan", OK, ids=lambda plan: plan.group)
def test_every_option_and_variable_is_known_to_the_pinned_engine(plan: Plan) -> None:
    assert plan.build is not None
    engine, version = plan.build.engine, plan.build.version
    options = {word for word in plan.command if word.startswith("-") and word != "-m"}
    assert options - known_options(engine, version) == set()
    own = {name for name in plan.environment if is_own_variable(engine, name)}
    assert own - known_variables(engine, version) == set()


@pytest.mark.parametrize("plan", OK, ids=lambda plan: plan.group)
def test_memory_adds_up(plan: Plan) -> None:
    for gpu in plan.memory:
        parts = gpu.weights_mib + gpu.kv_cache_mib + gpu.overhead_mib + gpu.free_mib
        assert parts == gpu.capacity_mib
        assert gpu.free_mib >= 0


@pytest.mark.parametrize("cards", ["dual_3090", "dual_4090"])
def test_q4_k_m_does_not_fit_two_consumer_cards(cards: str) -> None:
    assert refusal_rules(cards) == {"gpu-memory"}
    assert BY_GROUP[cards].alternatives or BY_GROUP[cards].refusals[0].hint


@pytest.mark.parametrize("cards", ["dual_3090_192gb", "dual_4090_192gb"])
def test_with_enough_host_memory_the_experts_go_there_and_the_price_is_named(cards: str) -> None:
    plan = planned(cards)
    assert plan.build is not None and plan.build.engine == "llama.cpp"
    assert int(value(plan, "--n-cpu-moe")) > 40
    assert plan.host_memory_mib is not None and plan.host_memory_mib > 80 * 1024
    assert "host-offload" in warning_rules(cards)
    # 20 tokens/s were claimed for two 4090; host memory is the same for both kinds of card.
    assert plan.decode_tokens_per_second is not None and plan.decode_tokens_per_second.low < 10


def test_three_cards_split_layers_and_never_heads() -> None:
    plan = planned("triple_pro_6000")
    assert plan.parallel is not None
    assert (plan.parallel.tensor, plan.parallel.pipeline) == (1, 3)
    partition = [int(part) for part in plan.environment["VLLM_PP_LAYER_PARTITION"].split(",")]
    assert sum(partition) == 62


@pytest.mark.parametrize("group", ["quad_3090_m2_1", "quad_3090_m2_5"])
def test_four_3090_hold_two_bits_at_65536(group: str) -> None:
    plan = planned(group)
    assert (plan.context, plan.kv_cache_type) == (65536, "q8_0")
    used = sum(gpu.capacity_mib - gpu.free_mib for gpu in plan.memory) / 1024
    assert used == pytest.approx(23.4 + 21.7 + 23.1 + 22.0, rel=0.05)
    assert [value(plan, option) for option in ("--temp", "--top-p", "--top-k")] == ["1.0", "0.95", "40"]


def test_a_sixteen_bit_cache_does_not_fit_four_3090() -> None:
    assert refusal_rules("quad_3090_m2_1_f16") == {"gpu-memory"}
    assert any("q8_0" in other.why for other in BY_GROUP["quad_3090_m2_1_f16"].alternatives)


def test_six_3090_hold_each_of_the_three_and_the_best_is_picked() -> None:
    assert planned("six_3090_iq2_m").context == 131072
    assert planned("six_3090_iq3_xxs").context == 65536
    assert planned("six_3090_q3_k_m").checkpoint is not None
    picked = planned("six_3090").checkpoint
    assert picked is not None
    assert planned("six_3090").context == 131072
    assert picked.bytes > 100_000_000_000


def test_four_b200_hold_fp8_with_room() -> None:
    plan = planned("quad_b200")
    assert weights_gib(plan) == pytest.approx([53.7] * 4, rel=0.01)
    assert plan.context == 32768
    assert value(plan, "--reasoning-parser") == "minimax_m2"


def test_the_version_that_crashes_on_b200_is_refused() -> None:
    assert "known-bad" in refusal_rules("quad_b200_0_16")


def test_two_b200_compute_in_nvfp4() -> None:
    assert "format-fallback" not in warning_rules("dual_b200")


def test_four_pro_6000_hold_fp8_and_some_400000_tokens() -> None:
    plan = planned("quad_pro_6000")
    assert weights_gib(plan) == pytest.approx([53.75] * 4, rel=0.01)
    assert plan.kv_tokens is not None and plan.kv_tokens > 380_000
    assert value(plan, "--reasoning-parser") == "minimax_m2"


def test_eight_cards_need_whole_experts() -> None:
    assert "fp8-block" in refusal_rules("eight_pro_6000_max_q_plain")
    for group in ("eight_pro_6000_max_q", "eight_pro_6000"):
        parallel = planned(group).parallel
        assert parallel is not None and (parallel.tensor, parallel.expert) == (8, 8)
    config = planned("eight_pro_6000_max_q").moe_config
    assert config is not None
    assert config.file.startswith("E=32,N=1536,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Max-Q")
    assert config.file.endswith("dtype=fp8_w8a8,block_shape=[128, 128].json")
    assert config.status != "missing" or "moe-config" in warning_rules("eight_pro_6000_max_q")
    assert planned("eight_pro_6000").moe_config is None, "vLLM 0.33.0 runs DeepGEMM there"
    assert "--moe-runner-backend" not in planned("eight_pro_6000_max_q").command, "SGLang 0.5.23 takes Triton's itself"


def test_sglang_on_two_cards_separates_reasoning_and_warns_about_host_memory() -> None:
    plan = planned("dual_pro_6000_sglang")
    assert value(plan, "--reasoning-parser") == "minimax"
    assert not [word for word in plan.command if word.startswith(("--nsa", "--dsa"))]
    assert "sglang-host-memory" in warning_rules("dual_pro_6000_sglang")


def test_nvfp4_on_two_cards_names_its_backend_by_option() -> None:
    plan = planned("dual_pro_6000")
    assert value(plan, "--kv-cache-dtype") == "fp8"
    assert "--moe-backend" in plan.command
    assert "VLLM_USE_FLASHINFER_MOE_FP4" not in plan.environment


def test_the_pruned_model_fits_one_card_at_81000() -> None:
    assert planned("single_pro_6000").context == 81000


def test_gb10_takes_its_memory_from_the_host() -> None:
    plan = planned("dgx_spark")
    assert plan.rig.gpus[0].memory_mib is None
    assert plan.memory[0].capacity_mib == pytest.approx(119 * 1024, rel=0.01)


def test_int4_in_groups_of_32_holds_the_full_context() -> None:
    assert planned("dual_pro_6000_awq").context == 196608


def test_two_copies_on_four_cards() -> None:
    plan = planned("quad_pro_6000_sglang")
    assert plan.parallel is not None
    assert (plan.parallel.tensor, plan.parallel.data) == (2, 2)


def test_two_cards_of_64_gb_are_too_small_and_two_of_96_are_not() -> None:
    assert refusal_rules("dual_a100_64gb") == {"gpu-memory"}
    assert BY_GROUP["dual_a100_64gb"].alternatives
    plan = planned("dual_pro_6000_eager")
    assert plan.context == 4096
    assert "--enforce-eager" in plan.command


@pytest.mark.parametrize("group", ["one_pro_6000_two_5090", "one_pro_6000_two_3090"])
def test_unequal_cards_get_layers_by_what_they_hold(group: str) -> None:
    plan = planned(group)
    partition = [int(part) for part in plan.environment["VLLM_PP_LAYER_PARTITION"].split(",")]
    assert sum(partition) == 62
    assert partition[0] > 2 * partition[1]
    assert all(gpu.free_mib >= 0 for gpu in plan.memory)


def test_an_offload_is_kept_to_what_the_host_has() -> None:
    plan = planned("one_pro_6000_two_3090")
    assert value(plan, "--cpu-offload-gb") == "10"
    assert plan.host_memory_mib is not None and plan.rig.host_memory_gib is not None
    assert 3 * 10 * 1024 <= plan.host_memory_mib <= plan.rig.host_memory_gib * 1024
    assert "host-offload" in warning_rules("one_pro_6000_two_3090")


def test_the_page_about_the_example_systems_is_complete_and_right_about_refusals() -> None:
    lines = DOCUMENT.read_text().splitlines()
    for plan in PLANS:
        (line,) = (line for line in lines if line.startswith("| R") and f"| `{plan.group}` |" in line)
        assert ("refused: `" in line) is (plan.verdict == "refused"), plan.group
        assert all(f"`{finding.rule}`" in line for finding in plan.refusals), plan.group
