"""Multi-head latent attention, with or without an indexer: DeepSeek V2 to V3.2, GLM 5, Kimi K2, Mistral 4."""

from __future__ import annotations

from typing import Any

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.layer import Layer


def read(config: Config) -> list[Layer] | None:
    """Every layer, where the model compresses keys and values and has no other kind of layer."""
    if not config.has("kv_lora_rank") or config.has("linear_attn_config", "linear_num_heads"):
        return None
    kinds = config.data.get("layer_types")
    if isinstance(kinds, list) and (other := [kind for kind in kinds if "linear" in str(kind)]):
        raise config.wrong("layer_types", f"{other[0][:40]!r}, but linear_num_heads is missing")
    return latent_layers(config)


def draft(config: Config) -> list[Layer]:
    """A built-in draft layer: its indexer is its own (vLLM 0.33.0 deepseek_mtp.py, SGLang 0.5.23 deepseek_nextn.py)."""
    return [_own(config)]


def latent_layers(config: Config) -> list[Layer]:
    """As many as the model has layers, each with an indexer where the model has one."""
    own = _own(config)
    if own[0] == "latent" or not config.has("indexer_types"):
        return [own] * config.layers
    shared: Layer = (own[0], {**own[1], "index_shared": True})
    return [shared if kind == "shared" else own for kind in config.each_layer("indexer_types", str)[: config.layers]]


def _own(config: Config) -> Layer:
    """A layer that shares no indexer."""
    fields = latent(config)
    if not config.has("index_head_dim"):
        return "latent", fields
    fields |= {"index_heads": config.number("index_n_heads"), "index_dim": config.number("index_head_dim")}
    if (pool := config.number("index_kpool", default=1)) > 1:
        fields["index_pool"] = pool
    return "latent_indexed", fields


def latent(config: Config) -> dict[str, Any]:
    """The ranks and widths."""
    return {
        "heads": config.number("num_attention_heads"),
        "kv_rank": config.number("kv_lora_rank"),
        "rope_dim": config.number("qk_rope_head_dim", least=0),
        "query_rank": config.number("q_lora_rank", default=0),
        "nope_dim": config.number("qk_nope_head_dim"),
        "value_dim": config.number("v_head_dim"),
    }
