"""Bytes of KV cache a token needs.

Sources: block layouts of ggml (q8_0: 34 bytes for 32 elements, q5_1: 24, q4_0: 18); vLLM and SGLang keep fp8
without scales. Checked against logs: 65,536 tokens of MiniMax-M2.5 in f16 are 15,872 MiB to the MiB; 23.62 GiB on
each of four ranks hold 399,424. The indexer of sparse attention: vLLM 0.33.0 models/minimax_m3/common/indexer.py, one
head on every rank (num_kv_heads=1), in bf16 whatever the cache is in (config/attention.py: indexer_kv_dtype "auto").
"""

from __future__ import annotations

from rigup.catalogue.model import Model

ELEMENT_BYTES = {"f16": 2.0, "bf16": 2.0, "fp8": 1.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q4_0": 18 / 32}
INDEX_ELEMENT_BYTES = 2.0


def layer_token_bytes(model: Model, kv_cache_type: str, tensor: int = 1) -> float:
    """Bytes that one token takes in one layer on one GPU. Beyond as many ranks as KV heads, heads are repeated.

    An indexer's keys are whole on every rank, and shared out evenly over the layers, of which a few have none.
    """
    heads = max(1, -(-model.kv_heads // tensor))
    index = model.index_head_dim * model.index_layers / model.layers * INDEX_ELEMENT_BYTES
    return 2 * heads * model.head_dim * ELEMENT_BYTES[kv_cache_type] + index


def token_bytes(model: Model, kv_cache_type: str) -> float:
    """Bytes that one token takes over all layers, held once."""
    return model.layers * layer_token_bytes(model, kv_cache_type)
