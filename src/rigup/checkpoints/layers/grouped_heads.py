"""Full, sliding and chunked attention with grouped heads, as most models say it: layer_types, or keys of the family.

Sources: transformers 5.23.0, the configuration classes of the families named here.
"""

from __future__ import annotations

from typing import Any

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.layer import Layer, unknown_kind
from rigup.plain_values import quoted

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
ALIASES = {"attention": FULL, "global": FULL, "global_attention": FULL, "local": SLIDING, "local_attention": SLIDING}
CHUNKED_EVERY = 4
# Families whose class always has an output gate.
GATED = ("qwen3_next", "muse_glimmer_text")


def read(config: Config) -> list[Layer]:
    """Every layer."""
    return [layer(config, kind, number) for number, kind in enumerate(kinds(config))]


def draft(config: Config) -> list[Layer]:
    """A built-in draft layer: as the last layer, but a window in MiMo V2 (vLLM 0.32.0 mimo_v2_mtp.py)."""
    kind = SLIDING if config.has("hybrid_layer_pattern") else kinds(config)[-1]
    return [layer(config, kind, config.layers - 1)]


def kinds(config: Config) -> list[str]:
    """What each layer is."""
    layers = config.layers
    if config.has("layer_types"):
        return [ALIASES.get(kind, kind) for kind in config.each_layer("layer_types", str)[:layers]]
    if config.has("hybrid_layer_pattern"):  # MiMo V2: 1 is a window
        pattern = config.each_layer("hybrid_layer_pattern", int)[:layers]
        return [SLIDING if value == 1 else FULL for value in pattern]
    if config.has("attention_chunk_size") and not config.has("sliding_window"):  # Llama 4
        every = config.number("no_rope_layer_interval", default=CHUNKED_EVERY)
        return [FULL if (number + 1) % every == 0 else CHUNKED for number in range(layers)]
    if not config.has("sliding_window") or not config.flag("use_sliding_window", default=True):
        return [FULL] * layers
    if config.flag("has_own_layer_types"):  # by rigup.checkpoints.class_defaults
        raise config.wrong(
            "layer_types",
            f"missing, and {config.text('model_type')} places its windows in a way that rigup does not know",
        )
    every = config.number("sliding_window_pattern", default=0, least=0)
    if not every:
        return [SLIDING] * layers
    return [FULL if (number + 1) % every == 0 else SLIDING for number in range(layers)]


def layer(config: Config, kind: str, number: int) -> Layer:
    """One layer of a kind."""
    if config.has("num_kv_shared_layers") and config.number("num_kv_shared_layers", least=0):
        raise config.wrong("num_kv_shared_layers", "rigup cannot count layers that use the cache of another layer")
    if kind == FULL:
        without = {"rope_dim": 0} if config.has("attention_chunk_size") else {}  # Llama 4
        return "full", {**heads(config, number), **without}
    if kind == SLIDING:
        return "sliding_window", {**heads(config, number, sliding=True), "window": config.number("sliding_window")}
    if kind == CHUNKED:
        return "chunked_local", {**heads(config, number), "chunk": config.number("attention_chunk_size")}
    raise unknown_kind(config, kind)


def heads(config: Config, number: int, sliding: bool = False) -> dict[str, Any]:
    """Heads and their widths; some families have others in their windows, or in their full layers."""
    count = config.number("num_attention_heads", "n_head", "n_heads")
    if config.has("num_attention_heads_per_layer"):
        count = config.each_layer("num_attention_heads_per_layer", int)[number]
    kv_heads = config.number("num_key_value_heads", "num_kv_heads", "n_head_kv", default=count)
    width = config.number("head_dim", "attention_head_dim", default=config.hidden // count)
    value = config.number("v_head_dim", default=width)
    if sliding:
        count = config.number("swa_num_attention_heads", default=count)
        kv_heads = config.number("swa_num_key_value_heads", default=kv_heads)
        width = config.number("swa_head_dim", default=width)
        value = config.number("swa_v_head_dim", default=value)
    elif config.has("global_head_dim"):  # Gemma 4
        width = value = config.number("global_head_dim")
        kv_heads = config.number("num_global_key_value_heads", default=kv_heads)
    found: dict[str, Any] = {"heads": count, "kv_heads": kv_heads, "head_dim": width}
    if value != width:
        found["value_dim"] = value
    if not sliding and config.flag("attention_k_eq_v"):
        found["keys_are_values"] = True
    turned = turned_part(config, SLIDING if sliding else FULL, width)
    if turned != width:
        found["rope_dim"] = turned
    if config.flag("attn_output_gate") or config.text("model_type") in GATED:
        found["gated"] = True
    return found


def turned_part(config: Config, kind: str, width: int) -> int:
    """How much of a head positions turn: rotary_dim, or a factor, which may differ between kinds of layers.

    With "proportional" positions the table is as wide as the head: transformers 5.23.0 modeling_rope_utils.py.
    """
    if config.has("rotary_dim"):
        return config.number("rotary_dim", most=width)
    said = config.table("rope_parameters")
    for table in (said.table(kind) if said.has(kind) else said, config):
        if table.text("rope_type") == "proportional":
            return width
        if table.has("partial_rotary_factor"):
            factor = table.data["partial_rotary_factor"]
            if not isinstance(factor, (int, float)) or not 0 < factor <= 1:
                raise table.wrong("partial_rotary_factor", f"must be a part of 1, not {quoted(factor)}")
            return int(width * factor)
    return width
