"""What the flags say of towers, draft layers and cached prefixes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.planner.candidate import Candidate
from rigup.planner.memory.fit import place_in_memory
from rigup.planner.memory.loading import draft_of, loads_vision, state_blocks
from rigup.units import MIB
from tests.measured.rows import candidate, rows
from tests.unit.planner.asking import catalogue, decided, served

GLM = candidate(next(row for row in rows() if row.name == "rtx6k-glm51-dcp1-mtp1"))


def flagged(flags: dict[str, object], version: str = "0.33.0") -> Candidate:
    release = GLM.release.model_copy(update={"version": version})
    return replace(GLM, service=GLM.service.model_copy(update={"flags": flags}), release=release)


@pytest.mark.parametrize(
    ("flags", "drafting"),
    [
        ({}, False),
        ({"--speculative-config": '{"method": "mtp", "num_speculative_tokens": 3}'}, True),
        ({"--speculative-config": {"method": "mtp"}}, True),
        ({"--speculative-config": '{"method": "eagle", "model": "org/name"}'}, False),
        ({"--speculative-config": '{"method": "ngram"}'}, False),
        ({"--spec-method": "mtp"}, True),
        ({"--speculative-algorithm": "EAGLE"}, True),
        ({"--speculative-algorithm": "EAGLE", "--speculative-draft-model-path": "org/name"}, False),
    ],
)
def test_draft_layers_are_loaded_where_the_flags_ask_for_them(flags: dict[str, object], drafting: bool) -> None:
    assert (draft_of(flagged(flags)) is not None) is drafting


def test_a_model_without_draft_layers_has_none_to_load() -> None:
    plain = replace(flagged({"--spec-method": "mtp"}), model=GLM.model.model_copy(update={"mtp_attention": ()}))
    assert draft_of(plain) is None


def test_the_tower_is_left_out_on_request_alone() -> None:
    assert loads_vision(flagged({}))
    assert not loads_vision(flagged({"--language-model-only": True}))


@pytest.mark.parametrize(("flags", "version", "blocks"), [({}, "0.33.0", 2), ({}, "0.27.0", 1)])
def test_cached_prefixes_cost_a_second_state(flags: dict[str, object], version: str, blocks: int) -> None:
    assert state_blocks(flagged(flags, version)) == blocks
    assert state_blocks(flagged({"--no-enable-prefix-caching": True}, version)) == 1


def test_what_an_eagle_head_makes_of_hidden_states_is_whole_on_every_rank() -> None:
    asked = {"checkpoint": "moonshotai/Kimi-K2.6", "engine": "vllm", "tensor_parallel": 8, "trust_remote_code": True}
    head = {"speculative": {"kind": "eagle", "model": "lightseekorg/kimi-k2.6-eagle3-mla"}}
    alone, drafting = (decided("8x H200", {**asked, "context": 32768, **more}).memory[0] for more in ({}, head))
    tensors = next(one for one in catalogue().checkpoints if one.repo.endswith("kimi-k2.6-eagle3-mla")).tensors
    assert tensors
    (layer,) = tensors.layers
    cut = tensors.embedding + tensors.head + layer.attention + layer.dense
    whole = tensors.norms + layer.replicated + layer.norms
    assert drafting.weights_mib - alone.weights_mib == pytest.approx((cut / 8 + whole) / MIB, abs=2)


@pytest.mark.parametrize(("repo", "mib"), [("Qwen/Qwen3.6-27B", 2425), ("meta-llama/Llama-3.3-70B-Instruct", 0)])
def test_each_stage_of_a_pipeline_has_the_embeddings_of_qwen_3_5(repo: str, mib: int) -> None:
    """248,320 tokens of 5,120 elements in bf16."""
    asked = {"engine": "vllm", "context": 4096, "pipeline_parallel": 2, "tensor_parallel": 1, "checkpoint": repo}
    found = served("2x H200", asked)
    without = replace(found, release=found.release.model_copy(update={"stage_embeddings": ()}))
    placed = place_in_memory(without)
    assert isinstance(placed, Candidate)
    more = [(one.weights - other.weights) / MIB for one, other in zip(found.usage, placed.usage, strict=True)]
    assert sum(more) == pytest.approx(mib, abs=1), "layers may have moved"
