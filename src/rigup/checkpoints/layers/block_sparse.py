"""MiniMax M3: grouped heads, on most layers over blocks that an indexer picks (sparse_attention_config)."""

from __future__ import annotations

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.grouped_heads import heads
from rigup.checkpoints.layers.layer import Layer


def read(config: Config) -> list[Layer] | None:
    """Every layer, where the model has such an indexer."""
    if not config.has("sparse_attention_config"):
        return None
    sparse = config.table("sparse_attention_config")
    if not sparse.flag("use_sparse_attention", default=True):
        return None
    where = Config({**sparse.data, "num_hidden_layers": config.layers}, sparse.where)
    picked = where.each_layer("sparse_attention_freq", int)[: config.layers]
    width = sparse.number("sparse_index_dim")
    return [
        ("block_sparse", {**heads(config, number), "index_dim": width}) if on else ("full", heads(config, number))
        for number, on in enumerate(picked)
    ]
