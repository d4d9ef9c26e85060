"""DeepSeek V4: one shared key, a window, and one entry for as many tokens as compress_ratios says of each layer."""

from __future__ import annotations

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.layer import Layer

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
    return [
        ("compressed_sparse", {**shared, "ratio": ratio, **(index if ratio == INDEXED_RATIO else {})})
        for ratio in ratios
    ]
