"""DeepSeek V4 and V4.1: one shared key, a window, and one entry for as many tokens as compress_ratios says of a layer.

V4.1 names the layers that have entries and indexers of their own; those behind them share what they made.
"""

from __future__ import annotations

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.layer import Layer, numbers

INDEXED_RATIO = 4


def read(config: Config) -> list[Layer] | None:
    """Every layer, where the model compresses so."""
    if not config.has("compress_ratios"):
        return None
    shared = {
        "heads": config.number("num_attention_heads"),
        "head_dim": config.number("head_dim"),
        "rope_dim": config.number("qk_rope_head_dim"),
        "window": config.number("sliding_window"),
        "query_rank": config.number("q_lora_rank"),
        "output_rank": config.number("o_lora_rank"),
        "output_groups": config.number("o_groups"),
    }
    index = {"index_heads": config.number("index_n_heads"), "index_dim": config.number("index_head_dim")}
    ratios = config.each_layer("compress_ratios", int)[: config.layers]
    if config.has("kv_source_layer_ids"):
        sources = set(numbers(config, "kv_source_layer_ids", 0, config.layers - 1))
        indexed = set(numbers(config, "index_source_layer_ids", 0, config.layers - 1))
    else:
        sources = set(range(config.layers))
        indexed = {number for number, ratio in enumerate(ratios) if ratio == INDEXED_RATIO}
    found: list[Layer] = []
    for number, ratio in enumerate(ratios):
        own = {"shared": True} if ratio and number not in sources else {}
        found.append(("compressed_sparse", {**shared, "ratio": ratio, **own, **(index if number in indexed else {})}))
    return found
