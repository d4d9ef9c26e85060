"""vLLM keeps a state of each sequence of a hybrid model, and does not start with more than there is room for."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.plan import Plan
from tests.unit.planner.asking import decided

NVFP4 = {"checkpoint": "nvidia/Qwen3.5-122B-A10B-NVFP4", "engine": "vllm", "kv_cache_type": "fp8"}
CARD = "RTX PRO 6000 Blackwell Workstation Edition"


def value(plan: Plan, option: str) -> str:
    return plan.command[plan.command.index(option) + 1]


def planned(gpus: str = CARD, **service: Any) -> Plan:
    return decided(gpus, {**NVFP4, **service}, 256)


def test_a_plan_takes_no_more_sequences_than_states_have_room() -> None:
    plan = planned()
    assert plan.verdict == "ok", plan.refusals
    sequences = int(value(plan, "--max-num-seqs"))
    # vLLM 0.33.0's own code finds 157 blocks where 7.63 GiB are left for the cache
    assert 100 < sequences < 157


def test_more_cards_leave_room_for_more() -> None:
    assert int(value(planned(f"2x {CARD}"), "--max-num-seqs")) > int(value(planned(), "--max-num-seqs"))


def test_a_flag_above_them_is_refused_with_what_starts() -> None:
    refused = planned(flags={"--max-num-seqs": 1024})
    (finding,) = [found for found in refused.refusals if found.rule == "state-blocks"]
    assert finding.message.startswith("--max-num-seqs 1024 is more than the ") and "--enforce-eager" in finding.hint
    most = int(finding.hint.removeprefix("set --max-num-seqs to at most ").partition(",")[0])
    assert planned(flags={"--max-num-seqs": most}).verdict == "ok"


@pytest.mark.parametrize("flags", [{"--max-num-seqs": 64}, {"--max-num-seqs": 1024, "--enforce-eager": True}])
def test_fewer_or_no_graphs_are_the_users_business(flags: dict[str, Any]) -> None:
    plan = planned(flags=flags)
    assert plan.verdict == "ok", plan.refusals
    assert int(value(plan, "--max-num-seqs")) == flags["--max-num-seqs"]


def test_a_concurrency_above_them_is_refused_with_what_starts() -> None:
    (finding,) = planned(concurrency=2000).refusals
    assert finding.rule == "state-blocks"
    held = int(finding.hint.rpartition(" ")[2])
    assert f" for the states of {held} requests" in finding.message
    assert finding.message.endswith("concurrency is 2,000")
    plan = planned(concurrency=held)
    assert plan.verdict == "ok", plan.refusals
    assert int(value(plan, "--max-num-seqs")) >= held


def test_other_settings_are_tried_for_a_concurrency_that_needs_them() -> None:
    asked = int(value(planned(), "--max-num-seqs")) + 1
    plan = planned(concurrency=asked)
    assert plan.verdict == "ok", plan.refusals
    assert int(value(plan, "--max-num-seqs")) >= asked
