"""Candidates that draft tokens, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft
from rigup.planner.memory.fit import place_in_memory
from tests.unit.planner.rules.builder import candidate

QWEN, GLM = "Qwen/Qwen3.6-27B-FP8", "zai-org/GLM-5.2-FP8"


def drafting(engine: str = "vllm", tokens: int = 3, **given: Any) -> Candidate:
    draft = Draft("mtp", tokens)
    changes: dict[str, Any] = {"parallel": {"tensor": 2}, "sequences": 16, "batched_tokens": 2048, **given}
    return candidate("2x H100 80GB HBM3", QWEN, engine, draft=draft, **changes)


def placed(asked: Candidate) -> Candidate:
    settled = place_in_memory(asked)
    assert isinstance(settled, Candidate), settled.message
    return settled


def gguf_with_mtp() -> Candidate:
    """No GGUF of the catalogue has MTP layers: one gets those that llama.cpp's converter writes, in eight bits."""
    asked = candidate("2x H100 80GB HBM3", "unsloth/Qwen3.6-27B-GGUF", "llama.cpp", draft=Draft("mtp", 3))
    tensors = asked.checkpoint.tensors
    assert tensors is not None
    own = asked.checkpoint.model_copy(update={"tensors": tensors.model_copy(update={"mtp": 451_215_360})})
    return replace(asked, checkpoint=own)
