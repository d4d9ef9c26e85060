"""What the placement asks of an engine's caches on one pipeline stage; how they are laid out is the engine's module."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Protocol

# What a stage holds whose layers keep nothing: more than any other one.
ENDLESS = 2**40


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
