"""SGLang's caches: a pool of tokens, one of tokens for sliding layers, and one of states for linear layers.

Sources: SGLang 0.5.23 mem_cache/kv_cache_configurator.py (_handle_max_mamba_cache: states take
mamba_full_memory_ratio / (1 + it) of what is left, or as many as requests run where the radix cache is off;
_calculate_mamba_ratio: five states a request with it), model_executor/pool_configurator.py (sliding
layers keep swa_full_tokens_ratio tokens for each of the full layers). Measured: 535,124 tokens of
Qwen3.8-27B beside 32 states, 1,496,958 of MiMo-V2-Flash with a ratio of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rigup.attention import Attention
from rigup.attention.attention_class import LayerCache, Storage
from rigup.catalogue.model import Model
from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft
from rigup.planner.engine_memory import positive_number
from rigup.planner.memory.kv_cache import ENDLESS, CachePool, between, layer_caches, layer_token_bytes
from rigup.planner.memory.vllm_caches import TokenPool

STATE_RATIO, STATE_RATIO_OPTION = 0.9, "--mamba-full-memory-ratio"
WINDOW_RATIO, WINDOW_RATIO_OPTION = 0.8, "--swa-full-tokens-ratio"
# Of compressed attention: arg_groups/overrides.py. Each request has a state, and there are three more:
# DSV4PoolConfigurator, _get_c128_state_fixed_bytes.
_COMPRESSED, _COMPRESSED_WINDOW_RATIO, _COMPRESSED_STATES_MORE = "compressed_sparse", 0.1, 3
_MOST_RATIO = 1000
_NO_RADIX = "--disable-radix-cache"
# _calculate_mamba_ratio of kv_cache_configurator.py, with the buffers that steps in flight have by default.
_STATES_OF_A_REQUEST = 5


def sglang_pool(candidate: Candidate, draft: Draft | None = None, drafts: tuple[Attention, ...] = ()) -> CachePool:
    """The pools of a candidate's model, with the ratios that the service's flags give, and of what drafts tokens.

    drafts: the layers of `draft`.

    Each token of a step that is verified has a state of its own: SGLang 0.5.23 _handle_max_mamba_cache.
    """
    flags = candidate.service.flags
    compressed = any(entry.kind == _COMPRESSED for entry in candidate.model.attention)
    alone = candidate.sequences if compressed or flags.get(_NO_RADIX) else 0
    alone += _COMPRESSED_STATES_MORE if compressed else 0
    states = positive_number(flags.get(STATE_RATIO_OPTION), _MOST_RATIO) or STATE_RATIO
    windows = positive_number(flags.get(WINDOW_RATIO_OPTION), _MOST_RATIO)
    windows = windows or (_COMPRESSED_WINDOW_RATIO if compressed else WINDOW_RATIO)
    own, verified = draft is not None and draft.model is not None, draft.tokens + 1 if draft else 0
    most = candidate.sequences
    return _pool(candidate.model, candidate.storage, drafts, own, verified, alone, most, states, windows)


@lru_cache(maxsize=1024)
def _pool(
    model: Model,
    storage: Storage,
    drafts: tuple[Attention, ...],
    own: bool,
    verified: int,
    alone: int,
    most: int,
    state_ratio: float,
    window_ratio: float,
) -> CachePool:
    """own: whether a model of its own drafts, whose layers SGLang takes to keep what the target's do on average.

    Source: SGLang 0.5.23 pool_configurator.py, "assumes the draft shares the target's per-layer KV size". Where they
    keep more, that is counted, because it is allocated.
    """
    layers = layer_caches(model, storage, drafts)
    if all(cache.window is None and not cache.state_bytes for kept in layers for cache in kept):
        return TokenPool(_averaged(model, layer_token_bytes(model, storage, drafts), own))
    tokens = _averaged(model, tuple(sum(_kept(cache, window_ratio) for cache in kept) for kept in layers), own)
    states = tuple(sum(cache.state_bytes for cache in kept) for kept in layers)
    return StatePool(tokens, states, alone, state_ratio, verified, most)


def _averaged(model: Model, layers: tuple[float, ...], own: bool) -> tuple[float, ...]:
    """The bytes of a token in each layer, those that draft not below the average of the others."""
    if not own:
        return layers
    target = layers[: model.layers]
    return (*target, *(max(each, sum(target) / model.layers) for each in layers[model.layers :]))


def _kept(cache: LayerCache, window_ratio: float) -> float:
    return cache.token_bytes * (1 if cache.window is None else window_ratio)


@dataclass(frozen=True, slots=True)
class StatePool:
    """layers, states: bytes of a token and of a state in each layer. alone: the number of states, 0 for a ratio.

    verified: tokens of a step that are verified together, 0 without drafting. most: requests that run at once.
    """

    layers: tuple[float, ...]
    states: tuple[float, ...]
    alone: int
    ratio: float
    verified: int = 0
    most: int = 1

    def _least(self) -> int:
        """States of one request: its own, those that are remembered, and those of a step and of the row for padding."""
        return _STATES_OF_A_REQUEST + (1 + 2 * self.verified if self.verified else 0)

    def _state_bytes(self, room: float, first: int, end: int) -> float:
        """What states take of that room: whole ones, and one for padding; with drafting those of each step, too.

        How many there are is reckoned for all requests that states allow, what they take for those that run.
        """
        each = between(self.states, first, end)
        if not each:
            return 0.0
        if self.alone:
            return (self.alone + (self.alone + 1) * self.verified) * each
        part, steps = room * self.ratio / (1 + self.ratio), self.verified
        count = int((part - each * (1 + steps)) // (each * (1 + steps / _STATES_OF_A_REQUEST)))
        requests = min(self.most, count // _STATES_OF_A_REQUEST)
        return max(0, count + 1 + (requests + 1) * steps) * each

    def tokens(self, room: float, first: int, end: int, context: int) -> int:
        """What the states leave; none where the states of one request do not fit."""
        taken, each = self._state_bytes(room, first, end), between(self.layers, first, end)
        least = 0.0 if self.alone else self._least() * between(self.states, first, end)
        if room < taken or taken < least:
            return 0
        return int((room - taken) // each) if each else ENDLESS

    def needed_bytes(self, context: int, first: int, end: int) -> float:
        """Every token, and states beside or, by the ratio, together with them."""
        tokens, state = context * between(self.layers, first, end), between(self.states, first, end)
        if self.alone or not state:
            return tokens + self._state_bytes(0.0, first, end)
        part = self.ratio / (1 + self.ratio)
        return max(tokens / (1 - part), self._least() * state / part)

    def used_bytes(self, tokens: int, room: float, first: int, end: int, context: int) -> float:
        """The states that the room gives, and every token."""
        return self._state_bytes(room, first, end) + tokens * between(self.layers, first, end)

    def layer_bytes(self, context: int) -> tuple[float, ...]:
        """Tokens and one state."""
        return tuple(each * context + state for each, state in zip(self.layers, self.states, strict=True))
