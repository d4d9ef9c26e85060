"""vLLM's KV cache: one pool of blocks, shared by groups of equally many layers.

Where all layers keep every token, a block has 16 tokens of every layer. Else layers are grouped by what they keep; a
block is a page of each layer of any one group, all pages are equally large, and a request takes blocks of each group.
Sources: vLLM 0.33.0 v1/core/kv_cache_planning.py (unify_kv_cache_spec_page_size, _get_kv_cache_bytes_per_block,
_get_kv_cache_groups_uniform_page_size), v1/kv_cache_interface.py (max_memory_usage_bytes), platforms/interface.py (the
block of a hybrid's full layers is raised until its page holds a state), model_executor/models/config.py (a request has
two blocks of states where prefixes are cached, which is the default). Measured: 161.0 requests of 8,192 tokens of
Qwen3.5-397B on four ranks, 10.13 of gemma-4-31B on one, both without cached prefixes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rigup.attention import Attention
from rigup.attention.attention_class import LayerCache, Storage
from rigup.catalogue.model import Model
from rigup.planner.memory.kv_cache import ENDLESS, CachePool, between, layer_caches, layer_token_bytes

BLOCK_TOKENS = 16
# Beyond so much more layers of one kind than of the rarest, groups have as many layers as the rarest.
_SPLIT_FROM = 1.5


@lru_cache(maxsize=1024)
def vllm_pool(
    model: Model,
    storage: Storage,
    batched_tokens: int,
    drafts: tuple[Attention, ...],
    state_blocks: int = 1,
    block_tokens: int = BLOCK_TOKENS,
) -> CachePool:
    """The pool of one model on one size of tensor parallelism. drafts: layers that draft tokens.

    state_blocks: those of one request in each group. block_tokens: of the smallest block that the kernels take.
    """
    layers = layer_caches(model, storage, drafts)
    if all(cache.window is None and not cache.state_bytes for kept in layers for cache in kept):
        return TokenPool(layer_token_bytes(model, storage, drafts), block_tokens)
    if any(cache.tokens_per_entry > 1 for kept in layers for cache in kept):
        return PackedPool(layers, batched_tokens)
    return BlockPool.of(layers, batched_tokens, state_blocks, block_tokens)


@dataclass(frozen=True, slots=True)
class TokenPool:
    """Every layer keeps every token. layers: bytes of a token in each. block: tokens of a block."""

    layers: tuple[float, ...]
    block: int = BLOCK_TOKENS

    def tokens(self, room: float, first: int, end: int, context: int) -> int:
        """Whole blocks."""
        each = between(self.layers, first, end)
        tokens = int(room // each) if each else ENDLESS
        return tokens - tokens % self.block

    def needed_bytes(self, context: int, first: int, end: int) -> float:
        """Every token."""
        return context * between(self.layers, first, end)

    def used_bytes(self, tokens: int, room: float, first: int, end: int, context: int) -> float:
        """Every token."""
        return tokens * between(self.layers, first, end)

    def layer_bytes(self, context: int) -> tuple[float, ...]:
        """Every token."""
        return tuple(each * context for each in self.layers)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table. numbers: the layers, ascending. block: tokens of a block, 0 for a state.

    window: of sliding layers, else None.
    """

    numbers: tuple[int, ...]
    block: int
    window: int | None


@dataclass(frozen=True, slots=True)
class BlockPool:
    """Layers keep different things. page: bytes of each layer's part of a block. layers: how many there are."""

    page: float
    groups: tuple[Group, ...]
    layers: int
    batched_tokens: int
    state_blocks: int

    @classmethod
    def of(
        cls, layers: Sequence[tuple[LayerCache, ...]], batched_tokens: int, state_blocks: int, block_tokens: int
    ) -> BlockPool:
        """Pages made equal, and groups of equally many layers."""
        kinds: dict[LayerCache, list[int]] = {}
        for number, kept in enumerate(layers):
            for cache in kept:
                kinds.setdefault(cache, []).append(number)
        page = _page(kinds, block_tokens)
        size = _group_size([len(numbers) for numbers in kinds.values()])
        groups = list[Group]()
        for cache, numbers in kinds.items():
            count = -(-len(numbers) // size)
            block = _block(cache, page, block_tokens)
            groups += [Group(tuple(numbers[place::count]), block, cache.window) for place in range(count)]
        return cls(page, tuple(groups), len(layers), batched_tokens, state_blocks)

    @property
    def has_states(self) -> bool:
        """Whether some layers keep a state instead of tokens."""
        return any(not group.block for group in self.groups)

    def blocks(self, room: float, first: int, end: int) -> int:
        """Blocks that a stage has in that room."""
        each = self._block_bytes(first, end)
        return int(room // each) if each else ENDLESS

    def _block_bytes(self, first: int, end: int) -> float:
        """A page of each layer of the group that has most of them on the stage."""
        return self.page * max(
            bisect_left(group.numbers, end) - bisect_left(group.numbers, first) for group in self.groups
        )

    def request_blocks(self, context: int) -> int:
        """Blocks of each group: of all tokens, of the window and a step, or of states."""
        return sum(self._group_blocks(group, context) for group in self.groups)

    def _group_blocks(self, group: Group, context: int) -> int:
        if not group.block:
            return self.state_blocks
        if group.window is None:
            return -(-context // group.block)
        return -(-min(group.window - 1 + self.batched_tokens, context) // group.block) + 1

    def tokens(self, room: float, first: int, end: int, context: int) -> int:
        """As many requests as the blocks hold."""
        return self.blocks(room, first, end) * context // self.request_blocks(context)

    def needed_bytes(self, context: int, first: int, end: int) -> float:
        """The blocks of one request."""
        return self.request_blocks(context) * self._block_bytes(first, end)

    def used_bytes(self, tokens: int, room: float, first: int, end: int, context: int) -> float:
        """Whole blocks."""
        return -(-tokens * self.request_blocks(context) // context) * self._block_bytes(first, end)

    def layer_bytes(self, context: int) -> tuple[float, ...]:
        """Layers taken as equal: a run of them has its part of every group."""
        return (self.needed_bytes(context, 0, self.layers) / self.layers,) * self.layers


@dataclass(frozen=True, slots=True)
class PackedPool:
    """Layers whose entries stand for several tokens: pages of different sizes side by side in a block.

    Source: vLLM 0.33.0 v1/core/kv_cache_planning.py, _get_packed_kv_cache_groups. What stays unused of a block is not
    counted; no measured row tells.
    """

    layers: tuple[tuple[LayerCache, ...], ...]
    batched_tokens: int

    def tokens(self, room: float, first: int, end: int, context: int) -> int:
        """As many requests as there is room for."""
        needed = self.needed_bytes(context, first, end)
        return int(room * context // needed) if needed else ENDLESS

    def needed_bytes(self, context: int, first: int, end: int) -> float:
        """What the stage's layers keep of one request."""
        return between(self.layer_bytes(context), first, end)

    def used_bytes(self, tokens: int, room: float, first: int, end: int, context: int) -> float:
        """As many requests as these tokens are."""
        return tokens / context * self.needed_bytes(context, first, end)

    def layer_bytes(self, context: int) -> tuple[float, ...]:
        """Entries of all tokens, those of the window and a step, and states."""
        return tuple(
            sum(
                cache.state_bytes
                + cache.token_bytes
                * (context if cache.window is None else min(cache.window + self.batched_tokens, context))
                for cache in kept
            )
            for kept in self.layers
        )


def _page(kinds: dict[LayerCache, list[int]], block_tokens: int) -> float:
    """Bytes of every page: the largest of a block of tokens, or of as many as hold the largest state."""
    tokens = [cache for cache in kinds if cache.token_bytes]
    state = max((cache.state_bytes for cache in kinds), default=0.0)
    if not tokens:
        return state
    largest = max(tokens, key=lambda cache: cache.token_bytes)
    if not state:
        return block_tokens * largest.token_bytes
    step = max(largest.page_tokens, block_tokens) * largest.token_bytes
    return step * max(1, math.ceil(state / step))


def _block(cache: LayerCache, page: float, block_tokens: int) -> int:
    """Tokens of a page: as many as fit in whole blocks; 0 for a state."""
    return int(page // (block_tokens * cache.token_bytes)) * block_tokens if cache.token_bytes else 0


def _group_size(counts: Sequence[int]) -> int:
    """Layers of each group: as many as the rarest kind has, unless the others have hardly more."""
    least, most = min(counts), max(counts)
    return most if most < least * _SPLIT_FROM else least
