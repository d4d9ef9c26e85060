"""The metadata of a GGUF file as a configuration with the keys of config.json, for files that come without one.

Sources: gguf 0.19.0 constants.py, the keys of each architecture; llama.cpp b11434 src/llama-arch.cpp and llama-hparams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigup.checkpoints.config import HINT, Config
from rigup.checkpoints.gguf_header import GgufHeader
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
    "full_attention_interval": "full_attention_interval",
}
FULL, SLIDING = "full_attention", "sliding_attention"
# Windows on alternate layers where the file does not say which: llama.cpp's own pattern, every n-th layer is full.
PERIODS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "llama4": 4}
GATED_DELTA = ("qwen3next", "qwen35", "qwen35moe")


def gguf_config(header: GgufHeader, where: str) -> Config:
    """The configuration. Raises InputError naming the key that is missing or cannot be right."""
    architecture = header.metadata.get(ARCHITECTURE)
    if not isinstance(architecture, str) or not architecture.isprintable() or len(architecture) > 64:
        raise InputError(f"{where}: {ARCHITECTURE}: missing", HINT)
    prefix = f"{architecture}."
    said = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
    data: dict[str, Any] = {"model_type": architecture}
    data |= {ours: said[theirs] for theirs, ours in KEYS.items() if said.get(theirs) not in (None, 0)}
    data["num_hidden_layers"] = _number(said, "block_count") - _number(said, "nextn_predict_layers")
    names = {tensor.name for tensor in header.tensors}
    data["tie_word_embeddings"] = "output.weight" not in names
    if "vocab_size" not in data:
        data["vocab_size"] = header.lengths.get("tokenizer.ggml.tokens")
    for theirs, ours in (("head_count", "num_attention_heads"), ("head_count_kv", "num_key_value_heads")):
        heads = said.get(f"attention.{theirs}")
        if isinstance(heads, tuple):
            heads = max((head for head in heads if head), default=None)
        if heads is not None:
            data[ours] = heads
    if isinstance(width := said.get("feed_forward_length"), tuple):
        data["intermediate_size"] = max(width, default=None)
    if "kv_lora_rank" in data:
        data |= _latent(said)
    elif architecture in GATED_DELTA:
        data |= _gated_delta(said)
    elif "sliding_window" in data:
        data |= _windows(said, architecture, data["num_hidden_layers"])
    if (expert := data.get("moe_intermediate_size")) is None and data.get("num_experts"):
        data["moe_intermediate_size"] = data.get("intermediate_size", expert)
    return Config({key: value for key, value in data.items() if value is not None}, where)


def _number(said: Mapping[str, Any], key: str) -> int:
    found = said.get(key, 0)
    return found if type(found) is int else 0


def _latent(said: Mapping[str, Any]) -> dict[str, Any]:
    """llama.cpp's keys are those of the folded form; the unfolded ones end in _mla."""
    rope = _number(said, "rope.dimension_count")
    key, value = _number(said, "attention.key_length_mla"), _number(said, "attention.value_length_mla")
    key = key or _number(said, "attention.key_length")
    return {
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key - rope,
        "v_head_dim": value or _number(said, "attention.value_length"),
        "head_dim": None,
    }


def _gated_delta(said: Mapping[str, Any]) -> dict[str, Any]:
    state, values = _number(said, "ssm.state_size"), _number(said, "ssm.time_step_rank")
    inner = _number(said, "ssm.inner_size")
    return {
        "linear_num_key_heads": _number(said, "ssm.group_count"),
        "linear_num_value_heads": values,
        "linear_key_head_dim": state,
        "linear_value_head_dim": inner // values if values else 0,
        "linear_conv_kernel_dim": _number(said, "ssm.conv_kernel"),
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
    }


def _windows(said: Mapping[str, Any], architecture: str, layers: int) -> dict[str, Any]:
    """Which layers have a window: as the file lists them, else llama.cpp's own pattern of the architecture."""
    pattern = said.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple) and len(pattern) >= layers:
        kinds = [SLIDING if value else FULL for value in pattern[:layers]]
    else:
        period = pattern if type(pattern) is int and pattern > 0 else PERIODS.get(architecture, 1)
        kinds = [FULL if period > 1 and (n + 1) % period == 0 else SLIDING for n in range(max(0, layers))]
    found: dict[str, Any] = {"layer_types": kinds}
    if width := _number(said, "attention.key_length_swa"):
        heads = said.get("attention.head_count_kv")
        found |= {
            "global_head_dim": said.get("attention.key_length"),
            "head_dim": width,
            "v_head_dim": _number(said, "attention.value_length_swa") or width,
        }
        if isinstance(heads, tuple) and len(heads) >= layers:
            by_kind = {kind: head for kind, head in zip(kinds, heads, strict=False)}
            found["num_key_value_heads"] = by_kind.get(SLIDING)
            found["num_global_key_value_heads"] = by_kind.get(FULL)
    return found
