"""Candidates that draft tokens, for tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.checkpoints.config import Config
from rigup.checkpoints.layers import read_layers
from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft
from rigup.planner.memory.fit import place_in_memory
from tests.published.collect import read_configs
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


@cache
def small_model() -> Model:
    """Qwen3-0.6B, as its config.json says."""
    config = Config(read_configs()["Qwen/Qwen3-0.6B"]["config"], "Qwen3-0.6B")
    return Model(
        name="Qwen3-0.6B",
        architectures=("Qwen3ForCausalLM",),
        gguf_architecture="qwen3",
        layers=config.layers,
        hidden=config.hidden,
        attention=read_layers(config),
        vocab=config.number("vocab_size"),
        context=config.number("max_position_embeddings"),
        intermediate=config.number("intermediate_size"),
        tied_embeddings=True,
        parameters=596_049_920,
        active_parameters=596_049_920,
    )


def small(scheme: str = "bf16", **more: Any) -> CheckpointEntry:
    """A checkpoint of it: two bytes a weight, as published, or the size of the publisher's Q8_0."""
    quant, size = ("Q8_0", 639_446_688) if scheme == "gguf" else ("BF16", 1_192_099_840)
    repo = "Qwen/Qwen3-0.6B-GGUF" if scheme == "gguf" else "Qwen/Qwen3-0.6B"
    fields = {"embedding_bits": 8.5, "head_bits": 8.5} if scheme == "gguf" else {}
    return CheckpointEntry(repo=repo, model="Qwen3-0.6B", quant=quant, scheme=scheme, bytes=size, **fields, **more)


def head() -> Draft:
    """An EAGLE-3 head of its size."""
    classes = {"architectures": ("LlamaForCausalLMEagle3",), "gguf_architecture": "eagle3"}
    return Draft("eagle", 3, small_model().model_copy(update=classes), small())


def helped(engine: str = "vllm", tokens: int = 3, model: Model | None = None, **given: Any) -> Candidate:
    """Qwen3-235B on four or eight H200, with the small model to draft for it."""
    gguf = engine == "llama.cpp"
    repo = "unsloth/Qwen3-235B-A22B-Instruct-2507-GGUF" if gguf else "Qwen/Qwen3-235B-A22B-Instruct-2507"
    draft = Draft("draft", tokens, model or small_model(), small("gguf" if gguf else "bf16"))
    changes: dict[str, Any] = {"draft": draft, "sequences": 1 if gguf else 16, "batched_tokens": 2048}
    changes |= {} if gguf else {"parallel": {"tensor": 8}}
    return candidate(
        "4x H200" if gguf else "8x H200", repo, engine, quant="Q8_0" if gguf else None, **(changes | given)
    )
