"""Whose parsers a model has that nobody lists by its own name."""

from __future__ import annotations

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.checkpoints.parsers import find_parsers

MODELS = load_catalogue().models_by_name
CARD = "ada/qwen3-sft@0123: README.md"


def test_its_own_go_before_those_of_its_base() -> None:
    found = find_parsers("Qwen3-Coder-mine", ("Qwen3MoeForCausalLM",), ("zai-org/GLM-4.7",), CARD, MODELS)
    assert found.by_engine["vllm"].tool == ("qwen3_coder",)


@pytest.mark.parametrize(
    ("bases", "tool"),
    [
        (("Qwen/Qwen3-0.6B",), "hermes"),
        (("zai-org/GLM-4.7-FP8",), "glm47"),
        (("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B"), "hermes"),
    ],
)
def test_those_of_its_base(bases: tuple[str, ...], tool: str) -> None:
    found = find_parsers("qwen3-sft", ("Qwen3ForCausalLM",), bases, CARD, MODELS)
    assert found.by_engine["vllm"].tool == (tool,)
    assert found.source.startswith(f"{CARD}: base_model {bases[0]}; ") and not found.assumed


def test_a_base_that_the_fleet_made_has_them_of_its_own_base() -> None:
    found = find_parsers("qwen3-sft", ("Qwen3ForCausalLM",), ("Qwen/Qwen3-0.6B",), CARD, MODELS)
    between = MODELS["Qwen3-235B-A22B-Instruct-2507"].model_copy(
        update={"name": "qwen3-sft", "parsers": found.by_engine, "sources": {"parsers": found.source}}
    )
    again = find_parsers("qwen3-dpo", ("Qwen3ForCausalLM",), ("ada/qwen3-sft",), CARD, {**MODELS, "qwen3-sft": between})
    assert again.by_engine == found.by_engine
    assert "base_model ada/qwen3-sft" in again.source and "base_model Qwen/Qwen3-0.6B" in again.source


@pytest.mark.parametrize(
    ("classes", "bases", "tool"),
    [
        (("GlmMoeDsaForCausalLM",), (), "glm47"),
        (("GlmMoeDsaForCausalLM",), ("somebody/unknown",), "glm47"),
        (("MiniMaxM2ForCausalLM",), ("Qwen/Qwen3-0.6B", "zai-org/GLM-4.7"), "minimax_m2"),
    ],
)
def test_without_a_known_base_those_of_all_models_of_its_class(
    classes: tuple[str, ...], bases: tuple[str, ...], tool: str
) -> None:
    found = find_parsers("mine", classes, bases, CARD, MODELS)
    assert (found.by_engine["vllm"].tool, found.assumed) == ((tool,), True)
    assert found.source.startswith(f"{classes[0]}: as of ")


@pytest.mark.parametrize("classes", [("Qwen3MoeForCausalLM",), ("Glm4MoeForCausalLM",), ("NobodyHasThis",), ()])
def test_none_where_models_of_its_class_differ_or_there_are_none(classes: tuple[str, ...]) -> None:
    assert find_parsers("mine", classes, (), CARD, MODELS).by_engine == {}
