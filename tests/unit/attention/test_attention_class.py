"""Every class of attention: found by its module, exact where a log says how many bytes, and sane everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rigup.attention import KINDS, class_of
from rigup.attention.attention_class import ELEMENT_BYTES, AttentionClass, Storage
from rigup.catalogue.model import Model
from rigup.service import EngineName

ROOT = Path(__file__).parents[3] / "src" / "rigup"
EXAMPLES: dict[str, dict[str, Any]] = {
    "block_sparse": {"heads": 64, "kv_heads": 4, "head_dim": 128, "index_dim": 128},
    "chunked_local": {"heads": 40, "kv_heads": 8, "head_dim": 128, "chunk": 8192},
    "compressed_sparse": {
        "heads": 64,
        "head_dim": 512,
        "rope_dim": 64,
        "window": 128,
        "ratio": 4,
        "index_heads": 64,
        "index_dim": 128,
        "query_rank": 1024,
        "output_rank": 1024,
        "output_groups": 8,
    },
    "full": {"heads": 64, "kv_heads": 4, "head_dim": 128},
    "gated_delta": {"key_heads": 16, "value_heads": 64, "key_dim": 128, "value_dim": 128, "state_bits": 32},
    "kimi_delta": {"heads": 96, "head_dim": 128, "state_bits": 32},
    "latent": {"heads": 128, "kv_rank": 512, "rope_dim": 64, "query_rank": 1536, "nope_dim": 128, "value_dim": 128},
    "latent_indexed": {
        "heads": 128,
        "kv_rank": 512,
        "rope_dim": 64,
        "query_rank": 1536,
        "nope_dim": 128,
        "value_dim": 128,
        "index_heads": 64,
        "index_dim": 128,
    },
    "mamba": {"channels": 8192, "state": 16, "step_rank": 256},
    "mamba2": {"heads": 64, "head_dim": 64, "state": 128, "groups": 8, "state_bits": 32},
    "none": {},
    "sliding_window": {"heads": 64, "kv_heads": 8, "head_dim": 64, "window": 128},
}
"""One real shape of each class."""


def example(kind: str, **changes: Any) -> AttentionClass:
    return class_of(kind).model_validate({"layers": "0", **EXAMPLES[kind], **changes})


def kept(entry: AttentionClass, engine: EngineName, kind: str, tensor: int = 1) -> tuple[float, float]:
    """Bytes of a token and of a sequence's state."""
    caches = entry.caches(Storage(engine, kind, tensor))
    return sum(cache.token_bytes for cache in caches), sum(cache.state_bytes for cache in caches)


def test_every_class_has_an_example_here() -> None:
    assert sorted(EXAMPLES) == sorted(KINDS)


def test_nothing_outside_of_the_package_knows_a_class() -> None:
    """Adding a class is adding a module."""
    names = {name for kind in map(class_of, KINDS) for name in (kind.__name__, kind.__module__)}
    files = [path for path in ROOT.rglob("*.py") if path.parent.name != "attention"]
    assert [path.name for path in files if any(name in path.read_text() for name in names)] == []


# Bytes as engines' logs or their code say them; the classes' modules give the sources.
@pytest.mark.parametrize(
    ("kind", "engine", "cache", "tensor", "token", "state"),
    [
        ("full", "vllm", "bf16", 1, 2048, 0),
        ("full", "vllm", "bf16", 8, 512, 0),
        ("full", "llama.cpp", "q8_0", 1, 1088, 0),
        ("latent", "vllm", "bf16", 8, 1152, 0),
        ("latent", "sglang", "bf16", 8, 1152, 0),
        ("latent", "vllm", "fp8", 8, 576, 0),
        ("latent", "llama.cpp", "f16", 1, 1152, 0),
        ("latent_indexed", "vllm", "bf16", 8, 1284, 0),
        ("latent_indexed", "vllm", "fp8", 8, 788, 0),
        ("latent_indexed", "llama.cpp", "f16", 1, 1152 + 256, 0),
        ("block_sparse", "vllm", "fp8", 8, 256 + 256, 0),
        ("gated_delta", "vllm", "bf16", 4, 0, 1_067_008),
        ("compressed_sparse", "vllm", "fp8", 8, 584 + 146 + 33, 32_768 + 8192),
    ],
)
def test_bytes_on_a_rank(kind: str, engine: EngineName, cache: str, tensor: int, token: float, state: float) -> None:
    assert kept(example(kind), engine, cache, tensor) == (token, state)


def test_llama_cpp_keeps_both_states_in_f32() -> None:
    """598.5 MiB for four slots of Qwen3.6-27B, 48 linear layers (file-qwen36-27b-5090)."""
    _, state = kept(example("gated_delta", value_heads=48), "llama.cpp", "q8_0")
    assert 4 * 48 * state == 598.5 * 2**20


@pytest.mark.parametrize(("engine", "cache"), [("llama.cpp", "f16"), ("vllm", "bf16"), ("sglang", "bf16")])
def test_an_index_that_is_shared_is_kept_once(engine: EngineName, cache: str) -> None:
    assert kept(example("latent_indexed", index_shared=True), engine, cache) == (1152, 0)


def test_llama_cpp_keeps_each_tokens_key_and_gate_beside_a_key_that_tokens_share() -> None:
    """GLM-5.3-Flash: 1,792 bytes a token, as its own code reserves."""
    pooled = example("latent_indexed", rope_dim=0, index_pool=16)
    assert kept(pooled, "llama.cpp", "f16") == ((512 + 3 * 128) * 2, 0)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_more_ranks_never_keep_less_together_and_never_more_each(kind: str, engine: EngineName) -> None:
    entry = example(kind)
    for cache in ELEMENT_BYTES:
        each = [kept(entry, engine, cache, tensor) for tensor in (1, 2, 4, 8)]
        for index in (0, 1):
            alone = [one[index] for one in each]
            assert alone == sorted(alone, reverse=True)
            together = [one * tensor for one, tensor in zip(alone, (1, 2, 4, 8), strict=True)]
            assert together == sorted(together)


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_is_always_possible_and_a_prime_beyond_the_heads_never(kind: str) -> None:
    entry = example(kind)
    assert entry.divides(1)
    assert not entry.divides(10_007) or kind == "none"
    assert entry.shape and entry.divided
    assert entry.parameters(4096) > 0 or kind == "none"
    assert entry.activations(1) >= entry.activations(8) >= 0


def test_a_model_names_each_layer_once(m2: Model) -> None:
    fields = m2.model_dump()
    for layers in ("0-60", "0-62", "1-61"):
        wrong = [{"kind": "full", "layers": layers, "heads": 48, "kv_heads": 8, "head_dim": 128}]
        with pytest.raises(ValueError, match="attention: each layer from 0 to 61"):
            Model.model_validate({**fields, "attention": wrong})


def test_a_class_that_does_not_exist_is_refused(m2: Model) -> None:
    with pytest.raises(ValueError, match="latent, latent_indexed"):
        Model.model_validate({**m2.model_dump(), "attention": [{"kind": "quantum", "layers": "0-61"}]})


def test_a_value_is_not_converted_and_named_by_its_path(m2: Model) -> None:
    wrong = {"kind": "full", "layers": "0-61", **EXAMPLES["full"], "heads": "64"}
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({**m2.model_dump(), "attention": [wrong]})
    assert [(error["loc"], error["type"]) for error in caught.value.errors()] == [
        (("attention", 0, "heads"), "int_type")
    ]


def test_what_is_dumped_is_read_back(m2: Model) -> None:
    assert Model.model_validate(m2.model_dump()) == m2
    assert m2.model_dump()["attention"][0]["layers"] == "0-61"
