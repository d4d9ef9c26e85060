"""What the layers of a GGUF file keep, as the keys of config.json that say so: one function for each way.

Source: llama.cpp b11434 src/models/*.cpp, load_arch_hparams: what each architecture reads, and what it takes where the
file does not say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rigup.errors import InputError

Said = Mapping[str, Any]
FULL, SLIDING = "full_attention", "sliding_attention"
# Windows on alternate layers where the file does not say which: llama.cpp's own pattern, every n-th layer is full.
PERIODS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "llama4": 4}
GATED_DELTA = ("qwen3next", "qwen35", "qwen35moe")
# src/models/llama4.cpp: no file says another chunk.
LLAMA4_CHUNK = 8192
# Keys of layers that keep a state; where none of the functions below reads them, nothing must be taken as known.
STATES = ("ssm.state_size", "ssm.inner_size", "kda.head_dim", "shortconv.l_cache", "wkv.head_size")


def layer_keys(said: Said, architecture: str, layers: int, names: Collection[str], where: str) -> dict[str, Any]:
    """The keys. said: the architecture's metadata without its prefix. names: of all tensors.

    Raises InputError for layers that keep a state in a way that rigup does not know.
    """
    kv_heads = said.get("attention.head_count_kv")
    each = kv_heads if isinstance(kv_heads, tuple) and len(kv_heads) >= layers else ()
    if "attention.compress_ratios" in said:
        return _compressed(said)
    if "attention.kv_lora_rank" in said and "kda.head_dim" in said and each:
        return {**_latent(said), **_kimi_delta(said, each[:layers])}
    if architecture in GATED_DELTA:
        return _gated_delta(said)
    if "ssm.state_size" in said and each and 0 in each[:layers]:
        return _mamba(said, each[:layers], names)
    if any(key in said for key in STATES):
        raise InputError(
            f"{where}: rigup does not know what each layer of {architecture} caches",
            "choose a repository that has config.json beside the GGUF files",
        )
    if "attention.kv_lora_rank" in said:
        return {**_latent(said), **_indexers(said, layers, names)}
    if "attention.indexer.key_length" in said:
        return _picked_blocks(said, layers, names)
    if architecture == "llama4":
        none = said.get("attention.sliding_window") == 0
        return {"sliding_window": None, **({} if none else {"attention_chunk_size": LLAMA4_CHUNK})}
    return _windows(said, architecture, layers) if integer(said, "attention.sliding_window") else {}


def integer(said: Said, key: str) -> int:
    """A whole number of the metadata; 0 where there is none."""
    found = said.get(key, 0)
    return found if type(found) is int else 0


def _latent(said: Said) -> dict[str, Any]:
    """llama.cpp's keys are those of the folded form; the unfolded ones end in _mla."""
    rope = integer(said, "rope.dimension_count")
    key, value = integer(said, "attention.key_length_mla"), integer(said, "attention.value_length_mla")
    key = key or integer(said, "attention.key_length")
    return {
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key - rope,
        "v_head_dim": value or integer(said, "attention.value_length"),
        "head_dim": None,
    }


def _indexers(said: Said, layers: int, names: Collection[str]) -> dict[str, Any]:
    """Which layers have an indexer of their own: as the file lists them, else those that have its weights."""
    types = said.get("attention.indexer.types")
    if not isinstance(types, tuple) or len(types) < layers:
        types = tuple(f"blk.{number}.indexer.attn_k.weight" in names for number in range(max(0, layers)))
    return {"indexer_types": ["full" if own else "shared" for own in types]} if any(types) else {}


def _compressed(said: Said) -> dict[str, Any]:
    ratios = said["attention.compress_ratios"]
    return {
        "compress_ratios": list(ratios) if isinstance(ratios, tuple) else ratios,
        "qk_rope_head_dim": integer(said, "rope.dimension_count"),
        "o_lora_rank": integer(said, "attention.output_lora_rank"),
        "o_groups": integer(said, "attention.output_group_count"),
        "v_head_dim": None,
    }


def _kimi_delta(said: Said, kv_heads: tuple[int, ...]) -> dict[str, Any]:
    """Layers without KV heads are linear; config.json counts them from 1."""
    numbered = list(enumerate(kv_heads, 1))
    return {
        "linear_attn_config": {
            "full_attn_layers": [number for number, heads in numbered if heads],
            "kda_layers": [number for number, heads in numbered if not heads],
            "head_dim": integer(said, "kda.head_dim"),
            "num_heads": said.get("attention.head_count"),
            "short_conv_kernel_size": integer(said, "ssm.conv_kernel"),
        }
    }


def _gated_delta(said: Said) -> dict[str, Any]:
    state, values = integer(said, "ssm.state_size"), integer(said, "ssm.time_step_rank")
    inner = integer(said, "ssm.inner_size")
    return {
        "linear_num_key_heads": integer(said, "ssm.group_count"),
        "linear_num_value_heads": values,
        "linear_key_head_dim": state,
        "linear_value_head_dim": inner // values if values else 0,
        "linear_conv_kernel_dim": integer(said, "ssm.conv_kernel"),
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
    }


def _mamba(said: Said, kv_heads: tuple[int, ...], names: Collection[str]) -> dict[str, Any]:
    """Layers without KV heads keep a state, but for those that are a feed-forward part alone (Nemotron-H)."""
    groups, steps = integer(said, "ssm.group_count"), integer(said, "ssm.time_step_rank")
    inner = integer(said, "ssm.inner_size")
    kinds = [
        "attention"
        if heads
        else ("mamba2" if groups else "mamba")
        if f"blk.{number}.ssm_out.weight" in names
        else "moe"
        if f"blk.{number}.ffn_gate_inp.weight" in names
        else "mlp"
        for number, heads in enumerate(kv_heads)
    ]
    found: dict[str, Any] = {
        "layer_types": kinds,
        "mamba_d_conv": integer(said, "ssm.conv_kernel"),
        "mamba_d_state": integer(said, "ssm.state_size"),
        "mlp_layer_types": [
            "sparse" if f"blk.{number}.ffn_gate_inp.weight" in names else "dense" for number in range(len(kinds))
        ],
    }
    if not groups:
        return {**found, "mamba_d_inner": inner, "mamba_dt_rank": steps}
    heads = {"mamba_n_heads": steps, "mamba_d_head": inner // steps if steps else 0, "mamba_n_groups": groups}
    return {**found, **heads, "mamba_ssm_cache_dtype": "float32"}


def _picked_blocks(said: Said, layers: int, names: Collection[str]) -> dict[str, Any]:
    """MiniMax M3: the layers that have an indexer."""
    return {
        "sparse_attention_config": {
            "sparse_index_dim": integer(said, "attention.indexer.key_length"),
            "sparse_attention_freq": [int(f"blk.{n}.indexer.k_proj.weight" in names) for n in range(max(0, layers))],
        }
    }


def _windows(said: Said, architecture: str, layers: int) -> dict[str, Any]:
    """Which layers have a window: as the file lists them, else llama.cpp's own pattern of the architecture."""
    pattern = said.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple) and len(pattern) >= layers:
        kinds = [SLIDING if value else FULL for value in pattern[:layers]]
    else:
        period = pattern if type(pattern) is int and pattern > 0 else PERIODS.get(architecture, 1)
        kinds = [FULL if period > 1 and (n + 1) % period == 0 else SLIDING for n in range(max(0, layers))]
    found: dict[str, Any] = {"layer_types": kinds}
    if width := integer(said, "attention.key_length_swa"):
        heads = said.get("attention.head_count_kv")
        found |= {
            "global_head_dim": said.get("attention.key_length"),
            "head_dim": width,
            "v_head_dim": integer(said, "attention.value_length_swa") or width,
        }
        if isinstance(heads, tuple) and len(heads) >= layers:
            by_kind = {kind: head for kind, head in zip(kinds, heads, strict=False)}
            found["num_key_value_heads"] = by_kind.get(SLIDING)
            found["num_global_key_value_heads"] = by_kind.get(FULL)
    return found
