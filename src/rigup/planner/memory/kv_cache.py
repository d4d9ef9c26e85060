"""Bytes that tokens take in the caches of a model's layers, and what the placement asks of an engine's caches.

What each layer keeps is in rigup.attention; how an engine lays its caches out is that engine's module.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Protocol

from rigup.attention import Attention
from rigup.attention.attention_class import LayerCache, Page, Storage
from rigup.catalogue.model import Model

# What a stage holds whose layers keep nothing: more than any other one.
ENDLESS = 2**40
# Tokens of a block of vLLM's sparse kernels: 0.33.0 v1/attention/backends/mla/*sparse*.py.
_USUAL_TOKENS = 64


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
def layer_pages(model: Model, storage: Storage, drafts: tuple[Attention, ...] = ()) -> tuple[tuple[Page, ...], ...]:
    """The pages of each layer in vLLM, in the same order."""
    kept = dict[int, tuple[Page, ...]]()
    for first, entries in ((0, model.attention), (model.layers, drafts)):
        for entry in entries:
            pages = entry.pages(storage) or tuple(_page(cache) for cache in entry.caches(storage))
            kept |= dict.fromkeys((first + number for number in entry.layers), pages)
    return tuple(kept[number] for number in sorted(kept))


def _page(cache: LayerCache) -> Page:
    """Of a class that says nothing of vLLM's pages; 0 tokens for a state."""
    if not cache.token_bytes:
        return Page(0, cache.state_bytes)
    return Page(_USUAL_TOKENS, _USUAL_TOKENS * cache.token_bytes, cache.window)


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


class CachePool(Protocol):
    """The caches of one model in one engine, with one size of tensor parallelism. Bytes are of one rank.

    A stage holds the layers from `first` on and before `end`. Every stage holds as many tokens as the poorest one.
    """

    def tokens(self, room: float, first: int, end: int, context: int) -> int:
        """Tokens that a stage holds in `room` bytes, in requests of `context` tokens each."""

    def needed_bytes(self, context: int, first: int, end: int) -> float:
        """The least room in which a stage holds one such request."""

    def used_bytes(self, tokens: int, room: float, first: int, end: int, context: int) -> float:
        """What a stage with that room takes for so many tokens."""

    def layer_bytes(self, context: int) -> tuple[float, ...]:
        """About what one request takes of each layer, for spreading the layers over stages."""


@lru_cache(maxsize=4096)
def _totals(layers: tuple[float, ...]) -> tuple[float, ...]:
    return (0.0, *accumulate(layers))


def between(layers: tuple[float, ...], first: int, end: int) -> float:
    """The sum of the layers from `first` on and before `end`."""
    totals = _totals(layers)
    return totals[end] - totals[first]
