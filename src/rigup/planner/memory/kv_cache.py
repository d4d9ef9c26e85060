"""Bytes that tokens take in the caches of a model's layers; what each layer keeps is in rigup.attention."""

from __future__ import annotations

from functools import lru_cache

from rigup.attention import Attention
from rigup.attention.attention_class import LayerCache, Storage
from rigup.catalogue.model import Model


@lru_cache(maxsize=4096)
def layer_caches(
    model: Model, storage: Storage, drafts: tuple[Attention, ...] = ()
) -> tuple[tuple[LayerCache, ...], ...]:
    """What each layer keeps, in order; those that draft tokens come behind the others."""
    kept = dict[int, tuple[LayerCache, ...]]()
    for first, entries in ((0, model.attention), (model.layers, drafts)):
        for entry in entries:
            kept |= dict.fromkeys((first + number for number in entry.layers), entry.caches(storage))
    return tuple(kept[number] for number in sorted(kept))


@lru_cache(maxsize=4096)
def layer_token_bytes(model: Model, storage: Storage, drafts: tuple[Attention, ...] = ()) -> tuple[float, ...]:
    """Bytes that one token takes in each layer on one rank, windows not yet full."""
    return tuple(sum(cache.token_bytes for cache in kept) for kept in layer_caches(model, storage, drafts))


@lru_cache(maxsize=4096)
def token_bytes(model: Model, storage: Storage) -> float:
    """The same over all layers."""
    return sum(layer_token_bytes(model, storage))


@lru_cache(maxsize=65536)
def sequence_bytes(model: Model, storage: Storage, tokens: int) -> float:
    """Bytes that a sequence of so many tokens keeps over all layers on one rank, in no engine's pages."""
    return sum(
        cache.state_bytes + cache.token_bytes * (tokens if cache.window is None else min(tokens, cache.window))
        for kept in layer_caches(model, storage)
        for cache in kept
    )
