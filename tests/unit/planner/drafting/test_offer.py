"""A plan says what drafts tokens, or what it would cost to have the MTP layers do so."""

from __future__ import annotations

import pytest

from tests.unit.planner.asking import decided
from tests.unit.planner.drafts import QWEN


def test_without_room_the_refusal_names_what_is_lacking() -> None:
    plan = decided(
        "1x RTX 5090",
        {"model": "Qwen3.6-27B", "quant": "FP8", "engine": "vllm", "context": 32768, "speculative": "mtp"},
    )
    assert plan.verdict == "refused"
    assert [finding.rule for finding in plan.refusals] == ["gpu-memory"]
    assert "with its MTP layers" in plan.refusals[0].message


def test_it_is_offered_where_it_fits_and_not_turned_on() -> None:
    plan = decided("2x H100 80GB HBM3", {"model": "Qwen3.6-27B", "context": 65_536})
    assert "--speculative-config" not in plan.command
    assert plan.speculative == (
        '"speculative": "mtp" would use the MTP layers: 424.7 MB of memory, room for 1,275,587 tokens instead '
        "of 1,499,880"
    )


def test_the_offer_says_how_much_context_it_costs_where_rigup_chose_that() -> None:
    plan = decided("8x H200", {"model": "GLM-5.2"})
    assert plan.context is not None
    said = plan.speculative.partition("a context of ")[2].partition(" tokens")[0]
    assert 400_000 < int(said.replace(",", "")) < plan.context


def test_nothing_is_offered_without_layers_or_without_room() -> None:
    assert decided("4x H200", {"model": "MiniMax-M2.5"}).speculative == ""
    flags = {"--gpu-memory-utilization": 0.8}
    full = decided("2x RTX 3090", {"checkpoint": QWEN, "context": 60_000, "engine": "vllm", "flags": flags})
    assert (full.verdict, full.speculative) == ("ok", "")


def test_a_plan_says_what_drafts() -> None:
    plan = decided("2x H100 80GB HBM3", {"model": "Qwen3.6-27B", "speculative": {"kind": "mtp", "tokens": 1}})
    figures = {each.figure: (each.value, each.source) for each in plan.figures if each.subject == "drafts: MTP layers"}
    assert figures["weights"][0] == "424.7 MB" and "config.json" in figures["layers"][1]
    assert figures["layers"][0] == "1 of 24 heads, 4 KV heads of 256"
    assert plan.speculative == (
        "1 token at once by the checkpoint's own MTP layers (424.7 MB); how much faster it is depends on the prompts, "
        "and is not estimated"
    )


def test_published_heads_are_named_where_the_engine_can_draft_with_them() -> None:
    service = {"model": "gpt-oss-120b", "context": 32_768}
    said = decided("2x H100 80GB HBM3", {**service, "engine": "vllm"}).speculative
    assert said == (
        '"speculative": {"kind": "eagle", "model": "nvidia/gpt-oss-120b-Eagle3-v3"} would use a head that was trained '
        "for it, or lmsys/EAGLE3-gpt-oss-120b-bf16"
    )
    assert decided("4x H100 80GB HBM3", {**service, "engine": "llama.cpp"}).speculative == ""


def test_a_head_of_the_catalogue_is_planned_offline() -> None:
    head = {"kind": "eagle", "model": "lightseekorg/kimi-k2.6-eagle3-mla"}
    plan = decided("8x H200", {"model": "Kimi-K2.6", "engine": "vllm", "speculative": head})
    assert plan.verdict == "ok"
    assert plan.speculative.startswith("3 tokens at once by lightseekorg/kimi-k2.6-eagle3-mla BF16 (6.0 GB); ")
    assert '"method":"eagle3"' in plan.command[plan.command.index("--speculative-config") + 1]


@pytest.mark.parametrize("model", ["GLM-4.7", "Hy3"])
def test_layers_that_a_recipe_tells_of_can_draft(model: str) -> None:
    """Their stored configurations do not say how many there are."""
    asked = {"model": model, "context": 32_768, "speculative": "mtp"}
    plan = decided("8x H200", {**asked, "engine": "vllm"})
    assert plan.verdict == "ok", plan.refusals
    assert '"method":"mtp"' in plan.command[plan.command.index("--speculative-config") + 1]
    refused = decided("8x H200", {**asked, "engine": "llama.cpp"})
    (finding,) = [finding for finding in refused.refusals if finding.rule == "speculative-layers"]
    assert finding.message.endswith(" knows of") and "MTP" in finding.message
    assert "rigup model add" in finding.hint
