"""Bytes that a token takes in the caches of a model's layers; what each layer keeps is in rigup.attention."""

from __future__ import annotations

from functools import lru_cache

from rigup.attention.attention_class import Storage
from rigup.catalogue.model import Model


@lru_cache(maxsize=4096)
def token_bytes(model: Model, storage: Storage) -> float:
    """Bytes that one token takes over all layers on one rank, windows not yet full."""
    return sum(cache.token_bytes * len(entry.layers) for entry in model.attention for cache in entry.caches(storage))


def layer_token_bytes(model: Model, storage: Storage) -> float:
    """The same of one layer, on average."""
    return token_bytes(model, storage) / model.layers
