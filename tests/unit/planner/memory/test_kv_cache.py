"""Bytes of KV cache: what tensor parallelism cuts, and the indexer's keys, which it does not."""

from __future__ import annotations

import pytest

from rigup.attention.attention_class import Storage
from rigup.planner.memory.kv_cache import token_bytes
from tests.unit.planner.asking import catalogue, served

M3 = next(model for model in catalogue().models if model.name == "MiniMax-M3")
# Bytes a token of the indexer's keys: 57 layers, 128 elements, bf16.
INDEXER = 57 * 128 * 2


@pytest.mark.parametrize(("kind", "tensor", "heads"), [("bf16", 1, 4), ("bf16", 4, 1), ("bf16", 8, 1), ("fp8", 8, 1)])
def test_the_keys_of_m3s_indexer_are_whole_on_every_rank_and_in_bf16(kind: str, tensor: int, heads: int) -> None:
    main = 60 * 2 * heads * 128 * (2 if kind == "bf16" else 1)
    assert token_bytes(M3, Storage("vllm", kind, tensor)) == pytest.approx(main + INDEXER)


def test_models_without_an_indexer_have_no_such_keys() -> None:
    (m2,) = (model for model in catalogue().models if model.name == "MiniMax-M2.5")
    assert token_bytes(m2, Storage("vllm", "bf16")) == 253_952


def test_m3_on_eight_h100_holds_what_the_indexer_leaves() -> None:
    asked = {
        "checkpoint": "MiniMaxAI/MiniMax-M3-MXFP8",
        "engine": "vllm",
        "tensor_parallel": 8,
        "kv_cache_type": "bf16",
    }
    found = served("8x H100 80GB HBM3", asked)
    on_a_gpu = found.memory[0].kv_cache_mib * 2**20
    assert on_a_gpu / found.kv_tokens == pytest.approx(60 * 512 + INDEXER, rel=0.001)
    assert 250_000 < found.kv_tokens < 290_000
