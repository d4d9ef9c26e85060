"""Llama Nemotron (DeciLM): block_configs says of each layer how many heads share keys, or that it has no attention."""

from __future__ import annotations

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.layer import Layer


def read(config: Config) -> list[Layer] | None:
    """Every layer, where the configuration lists them so."""
    if not config.has("block_configs"):
        return None
    count = config.number("num_attention_heads")
    width = config.number("head_dim", default=config.hidden // count)
    found: list[Layer] = []
    for block in config.each_layer("block_configs", dict)[: config.layers]:
        attention = Config(block, f"{config.where}: block_configs").table("attention")
        if attention.flag("no_op") or attention.flag("replace_with_linear"):
            found.append(("none", {}))
            continue
        shared = attention.number("n_heads_in_group", most=count)
        found.append(("full", {"heads": count, "kv_heads": count // shared, "head_dim": width}))
    return found
