"""llama.cpp's caches: cells for every token, cells for the last ones of sliding layers, a state for each slot.

Sources: llama.cpp b11434 src/llama-kv-cache-iswa.cpp (sliding layers have window + n_ubatch cells in each stream, or
the windows of all slots + n_ubatch in the one stream of --kv-unified, in steps of 256 and never more than tokens),
src/llama-memory-recurrent.cpp (a state for each slot), src/llama-context.cpp (a slot's context in steps of 256) and
src/llama-kv-cache-dsv4.cpp (entries for several tokens, too). Measured: 4,608 cells of gemma-4-12B in four slots,
2 x 1,280 of gpt-oss-120b, and tests/tiny, where each class of attention is served.
"""

from __future__ import annotations

from functools import lru_cache

from rigup.attention import Attention
from rigup.attention.attention_class import LayerCache, Storage
from rigup.catalogue.model import Model
from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft
from rigup.planner.memory.kv_cache import layer_caches

_CELL_STEP = 256
_UNIFIED = ("--kv-unified", "-kvu")


def layer_cells(candidate: Candidate) -> tuple[float, ...]:
    """Bytes of each layer's cache for all slots of a candidate. Each slot has a state for every drafted token besides.

    Source: llama.cpp b11434 common/common.h, need_n_rs_seq, which smaller models that draft do not need.
    """
    states = 1 + (candidate.draft.tokens if candidate.draft and candidate.draft.kind != "draft" else 0)
    return _cells(candidate, candidate.model, (), candidate.storage, states)


def draft_cells(candidate: Candidate, draft: Draft) -> float:
    """Bytes of the cache of what drafts tokens, for all slots: it is of f16, whatever the model's own is.

    Source: llama.cpp b11434 common/speculative.cpp: as many cells as the model's context, type_k and type_v of its own.
    """
    storage = Storage("llama.cpp", "f16")
    if draft.model is not None:
        return sum(_cells(candidate, draft.model, (), storage, 1))
    return sum(_cells(candidate, candidate.model, candidate.model.mtp_attention, storage, 1)[candidate.model.layers :])


def _cells(
    candidate: Candidate, model: Model, drafts: tuple[Attention, ...], storage: Storage, states: int
) -> tuple[float, ...]:
    unified = is_unified(candidate)
    return cells(
        model, storage, candidate.context, candidate.sequences, candidate.batched_tokens, unified, drafts, states
    )


def is_unified(candidate: Candidate) -> bool:
    """Whether all slots share one stream of the cache."""
    return any(candidate.service.flags.get(name) for name in _UNIFIED)


@lru_cache(maxsize=4096)
def cells(
    model: Model,
    storage: Storage,
    context: int,
    slots: int,
    micro_batch: int,
    unified: bool,
    drafts: tuple[Attention, ...] = (),
    states: int = 1,
) -> tuple[float, ...]:
    """Bytes of each layer's cache. context: tokens of a slot. unified: one stream for all slots."""
    kinds: dict[int, float] = {}
    layers = layer_caches(model, storage, drafts)
    for kept in layers:
        if id(kept) not in kinds:
            kinds[id(kept)] = sum(_bytes(cache, context, slots, micro_batch, unified, states) for cache in kept)
    return tuple(kinds[id(kept)] for kept in layers)


def _bytes(cache: LayerCache, context: int, slots: int, micro_batch: int, unified: bool, states: int) -> float:
    context = -(-context // _CELL_STEP) * _CELL_STEP
    tokens = context * slots
    if cache.tokens_per_entry > 1:
        entries = -(-context // cache.tokens_per_entry)
        tokens = slots * -(-entries // _CELL_STEP) * _CELL_STEP * cache.tokens_per_entry
    elif cache.window is not None:
        streams, windows = (1, slots) if unified else (slots, 1)
        cells = -(-(cache.window * windows + micro_batch) // _CELL_STEP) * _CELL_STEP
        tokens = streams * min(cells, tokens // streams)
    return cache.token_bytes * tokens + cache.state_bytes * slots * states
