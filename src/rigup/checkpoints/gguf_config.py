"""The metadata of a GGUF file as a configuration with the keys of config.json, for files that come without one.

Sources: gguf 0.19.0 constants.py, the keys of each architecture; llama.cpp b11434 src/llama-arch.cpp and llama-hparams.
"""

from __future__ import annotations

from typing import Any

from rigup.checkpoints.config import HINT, Config
from rigup.checkpoints.gguf_header import GgufHeader
from rigup.checkpoints.gguf_layers import integer, layer_keys
from rigup.errors import InputError

ARCHITECTURE = "general.architecture"
KEYS = {
    "embedding_length": "hidden_size",
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
    "feed_forward_length": "intermediate_size",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
    "attention.key_length": "head_dim",
    "attention.value_length": "v_head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.indexer.head_count": "index_n_heads",
    "attention.indexer.key_length": "index_head_dim",
    "hyper_connection.count": "hc_mult",
    "full_attention_interval": "full_attention_interval",
    "nextn_predict_layers": "num_nextn_predict_layers",
}


def gguf_config(header: GgufHeader, where: str) -> Config:
    """The configuration. Raises InputError naming the key that is missing or cannot be right."""
    architecture = header.metadata.get(ARCHITECTURE)
    if not isinstance(architecture, str) or not architecture.isprintable() or len(architecture) > 64:
        raise InputError(f"{where}: {ARCHITECTURE}: missing", HINT)
    prefix = f"{architecture}."
    said = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    data: dict[str, Any] = {"model_type": architecture}
    data |= {ours: said[theirs] for theirs, ours in KEYS.items() if said.get(theirs) not in (None, 0)}
    data["num_hidden_layers"] = integer(said, "block_count") - integer(said, "nextn_predict_layers")
    names = {tensor.name for tensor in header.tensors}
    data["tie_word_embeddings"] = "output.weight" not in names
    data.setdefault("vocab_size", header.lengths.get("tokenizer.ggml.tokens"))
    for theirs, ours in (("head_count", "num_attention_heads"), ("head_count_kv", "num_key_value_heads")):
        heads = said.get(f"attention.{theirs}")
        if isinstance(heads, tuple):
            heads = max((head for head in heads if head), default=None)
        if heads is not None:
            data[ours] = heads
    if isinstance(width := said.get("feed_forward_length"), tuple):
        data["intermediate_size"] = max(width, default=None)
    data |= layer_keys(said, architecture, data["num_hidden_layers"], names, where)
    if data.get("num_experts"):
        data.setdefault("moe_intermediate_size", data.get("intermediate_size"))
    return Config({key: value for key, value in data.items() if value is not None}, where)
