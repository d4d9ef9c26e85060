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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from rigup.attention import Attention
from rigup.attention.attention_class import LayerCache, Page, Storage
from rigup.catalogue.model import Model
from rigup.planner.memory.kv_cache import ENDLESS, CachePool, between, layer_caches, layer_pages, layer_token_bytes

BLOCK_TOKENS = 16
# Beyond so much more layers of one kind than of the rarest, groups have as many layers as the rarest.
_SPLIT_FROM = 1.5


@lru_cache(maxsize=1024)
def vllm_pool(
    model: Model,
    storage: Storage,
    in_flight: int,
    drafts: tuple[Attention, ...],
    state_blocks: int = 1,
    block_tokens: int = BLOCK_TOKENS,
) -> CachePool:
    """The pool of one model on one size of tensor parallelism. drafts: layers that draft tokens.

    in_flight: tokens of one request that may be in steps which are not yet done. state_blocks: those of one request in
    each group. block_tokens: of the smallest block that the kernels take.
    """
    layers = layer_caches(model, storage, drafts)
    if all(cache.window is None and not cache.state_bytes for kept in layers for cache in kept):
        return TokenPool(layer_token_bytes(model, storage, drafts), block_tokens)
    if any(cache.tokens_per_entry > 1 for kept in layers for cache in kept):
        return BlockPool.packed(layer_pages(model, storage, drafts), in_flight)
    return BlockPool.of(layers, in_flight, state_blocks, block_tokens)


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
    """Layers that share a block table. numbers: the layers of its pages, ascending. sums: bytes of pages before each.

    block: tokens of a block, 0 for a state. window: of sliding layers, else None.
    """

    numbers: tuple[int, ...]
    sums: tuple[float, ...]
    block: int
    window: int | None

    @classmethod
    def of(cls, pages: Iterable[tuple[int, float]], block: int, window: int | None) -> Group:
        """pages: the number of a layer and the bytes of one of its pages."""
        ordered = sorted(pages)
        sums = (0.0, *accumulate(size for _, size in ordered))
        return cls(tuple(number for number, _ in ordered), sums, block, window)

    def bytes(self, first: int, end: int) -> float:
        """A page of each of its layers from `first` on and before `end`."""
        return self.sums[bisect_left(self.numbers, end)] - self.sums[bisect_left(self.numbers, first)]


@dataclass(frozen=True, slots=True)
class BlockPool:
    """Layers keep different things: a block holds the pages of any one group. layers: how many there are."""

    groups: tuple[Group, ...]
    layers: int
    in_flight: int
    state_blocks: int

    @classmethod
    def of(
        cls, layers: Sequence[tuple[LayerCache, ...]], in_flight: int, state_blocks: int, block_tokens: int
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
            for place in range(count):
                pages = ((number, page) for number in numbers[place::count])
                groups.append(Group.of(pages, block, cache.window))
        return cls(tuple(groups), len(layers), in_flight, state_blocks)

    @classmethod
    def packed(cls, layers: Sequence[tuple[Page, ...]], in_flight: int) -> BlockPool:
        """Pages of different sizes side by side in a block; groups of as many layers as fill it best.

        Source: vLLM 0.33.0 v1/core/kv_cache_planning.py, _get_packed_kv_cache_groups: layers with equal blocks and
        windows are of one kind; a kind is cut into groups where each of its sizes has equally many layers.
        """
        kinds: dict[tuple[int, int | None], dict[float, list[int]]] = {}
        for number, pages in enumerate(layers):
            for page in pages:
                kinds.setdefault((page.tokens, page.window), {}).setdefault(page.bytes, []).append(number)
        alike = [sizes for sizes in kinds.values() if len({len(numbers) for numbers in sizes.values()}) == 1]
        whole = max((_most_layers(sizes) for sizes in alike if len(sizes) > 1), default=0)
        size = _least_padding([_most_layers(sizes) for sizes in alike], whole) if whole else 0
        groups = list[Group]()
        for (block, window), sizes in kinds.items():
            count = -(-_most_layers(sizes) // size) if size and sizes in alike else 1
            for place in range(count):
                pages_of = ((number, each) for each, numbers in sizes.items() for number in numbers[place::count])
                groups.append(Group.of(pages_of, block, window))
        return cls(tuple(groups), len(layers), in_flight, 1)

    @property
    def has_states(self) -> bool:
        """Whether some layers keep a state instead of tokens."""
        return any(not group.block for group in self.groups)

    def blocks(self, room: float, first: int, end: int) -> int:
        """Blocks that a stage has in that room."""
        each = self.block_bytes(first, end)
        return int(room // each) if each else ENDLESS

    def block_bytes(self, first: int, end: int) -> float:
        """The pages of the group that takes most on the stage."""
        return max(group.bytes(first, end) for group in self.groups)

    def request_blocks(self, context: int) -> int:
        """Blocks of each group: of all tokens, of the window and the steps in flight, or of states."""
        return sum(self._group_blocks(group, context) for group in self.groups)

    def _group_blocks(self, group: Group, context: int) -> int:
        if not group.block:
            return self.state_blocks
        if group.window is None:
            return -(-context // group.block)
        return -(-min(group.window - 1 + self.in_flight, context) // group.block) + 1

    def tokens(self, room: float, first: int, end: int, context: int) -> int:
        """As many requests as the blocks hold."""
        return self.blocks(room, first, end) * context // self.request_blocks(context)

    def needed_bytes(self, context: int, first: int, end: int) -> float:
        """The blocks of one request."""
        return self.request_blocks(context) * self.block_bytes(first, end)

    def used_bytes(self, tokens: int, room: float, first: int, end: int, context: int) -> float:
        """Whole blocks."""
        return -(-tokens * self.request_blocks(context) // context) * self.block_bytes(first, end)

    def layer_bytes(self, context: int) -> tuple[float, ...]:
        """Layers taken as equal: a run of them has its part of every group."""
        return (self.needed_bytes(context, 0, self.layers) / self.layers,) * self.layers


def _most_layers(sizes: dict[float, list[int]]) -> int:
    """Of one size of page."""
    return max(len(numbers) for numbers in sizes.values())


def _least_padding(counts: Sequence[int], least: int) -> int:
    """The number of layers of a group, from `least` on, that leaves the fewest places empty; the largest of equals."""
    return min(range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


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
