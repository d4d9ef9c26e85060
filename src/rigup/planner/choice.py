"""Orders the candidates that fit: least offload and the margin first, then quality, speed and simplicity.

Quality is a ladder of levels (`rigup.catalogue.quality`); within a level speed decides, unless the service prefers
otherwise. docs/choice.md explains the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rigup.catalogue.quality import LEVELS, NEAR, JudgedQuality, quality_of
from rigup.planner.attempts import fit_context, with_larger_steps
from rigup.planner.candidate import Candidate
from rigup.planner.memory.weights import bits_per_weight
from rigup.planner.offload import asked_in_flags, offloaded_bytes
from rigup.planner.rules import is_refused
from rigup.planner.speed import decode_speed
from rigup.units import GIB

CONTEXT_STEP = 1024
# What larger steps for prompts leave of a context at least.
CONTEXT_BESIDE_STEPS = 0.75
_LOSSY_CACHE = ("q5_1", "q4_0")
_FULL_CACHE = ("f16", "bf16")
_WHOLE_CACHE = {"vllm": "bf16", "sglang": "bf16", "llama.cpp": "f16"}
# A speed that is at most a tenth below the fastest counts as equal: the estimate is not better than that.
_SPEED_STEP = 1.1
# Steps in which the amount that is offloaded counts, GiB.
_OFFLOAD_STEP_GIB = 8
_BITS_STEP = 0.25
_DEGRADED = len(LEVELS) - 1
_SLOWER = "is estimated to be slower"
_ORDER = {"vllm": 0, "sglang": 1, "llama.cpp": 2}


class Criterion(NamedTuple):
    """One reason to prefer a candidate. value: smaller is better. why: the reason for which a larger one loses."""

    value: float
    why: str


class Score(NamedTuple):
    """How good a candidate is: its criteria by weight. `prefer` changes the order of `preferences` only.

    speed: tokens per second, the middle of the estimate. bits: per weight, up to those that the maker publishes.
    """

    candidate: Candidate
    necessities: tuple[Criterion, ...]
    preferences: tuple[Criterion, ...]
    simplicity: tuple[Criterion, ...]
    speed: float
    bits: float
    quality: JudgedQuality

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """All of them."""
        return (*self.necessities, *self.preferences, *self.simplicity)

    @property
    def key(self) -> tuple[float, ...]:
        """The criteria as numbers; a smaller key is better."""
        return values(self.criteria)


def values(criteria: Iterable[Criterion]) -> tuple[float, ...]:
    """The criteria as numbers; smaller is better."""
    return tuple(criterion.value for criterion in criteria)


def scored(candidate: Candidate, place: int) -> Score:
    """Scores one candidate that fits. place: its position in the enumeration, for a stable order."""
    model = candidate.model
    # With a 16-bit cache, so that a smaller one does not win because fewer bytes are read.
    whole = candidate.storage._replace(kv_cache_type=_WHOLE_CACHE[candidate.engine.name])
    estimate = decode_speed(candidate, candidate.service.concurrency, whole)
    speed = math.sqrt(max(0.0, estimate.low * estimate.high))
    bits = min(bits_per_weight(candidate.checkpoint, model), model.reference_bits)
    quality = quality_of(candidate.checkpoint, model, candidate.catalogue.qualities)
    return Score(
        candidate,
        tuple(_necessities(candidate, quality)),
        tuple(_preferences(candidate, quality, speed, bits)),
        tuple(_simplicity(candidate, place)),
        speed,
        bits,
        quality,
    )


def _necessities(candidate: Candidate, quality: JudgedQuality) -> Iterator[Criterion]:
    """The criteria before any preference. Weights in host memory cost several times the speed."""
    pruned, lossy = candidate.checkpoint.pruned, candidate.kv_cache_type in _LOSSY_CACHE
    # First, as otherwise the smallest mix would always win by the least that it keeps in host memory. No source says
    # what pruning loses.
    poor = (
        Criterion(max(0, quality.rank - NEAR), f"is of a lower quality ({quality.level})"),
        Criterion(_DEGRADED - NEAR if pruned else 0, "has pruned experts"),
        Criterion(int(lossy), "quantises the KV cache to fewer than 8 bits"),
    )
    yield max(poor, key=lambda criterion: criterion.value)
    # Experts on the host are computed there; vLLM's offload sends the weights over PCIe for every token.
    kind = 2 if candidate.cpu_offload_gib else int(candidate.offloads_experts)
    asked = candidate.service.offload == "experts" or asked_in_flags(candidate.service)
    yield Criterion(max(0, kind - asked), "keeps weights in host memory, or sends them over PCIe for every token")
    yield Criterion(lossy, "quantises the KV cache to fewer than 8 bits")
    yield Criterion(pruned, "has pruned experts")
    yield Criterion(candidate.is_tight, "leaves so little GPU memory free that it may fail to start")
    steps = offloaded_bytes(candidate) // (_OFFLOAD_STEP_GIB * GIB) if candidate.service.prefer != "quality" else 0
    yield Criterion(steps, "keeps more weights in host memory")


def _preferences(candidate: Candidate, quality: JudgedQuality, speed: float, bits: float) -> Iterator[Criterion]:
    """The criteria whose order the service's `prefer` changes."""
    prefer = candidate.service.prefer
    level = Criterion(quality.rank, f"is of a lower quality ({quality.level})")
    finest = Criterion(-round(bits / _BITS_STEP), "has fewer bits per weight")
    fast = Criterion(-speed, _SLOWER)
    own = candidate.own_cache_type if candidate.kv_cache_type not in _FULL_CACHE else None
    quantises = candidate.kv_cache_type not in (*_FULL_CACHE, own and own.name)
    cache = Criterion(quantises, "quantises the KV cache to 8 bits")
    native = Criterion(not _is_native(candidate), "is in a format that these GPUs do not compute in")
    small = Criterion(
        not _computes_in_few_bits(candidate), "is not in a format of 4 or 8 bits that these GPUs compute in"
    )
    poor = Criterion(quality.degraded, f"is of a lower quality ({quality.level})")
    # The last level has no lower limit, so bits count before speed there.
    depth = Criterion(finest.value if quality.degraded else 0, finest.why)
    if prefer == "quality":
        yield from (level, finest, cache, fast, native)
    elif prefer == "speed":
        yield from (poor, depth, fast, level, native, finest, cache)
    elif prefer == "context":
        # Where the service sets the context, the tokens in the cache.
        held = candidate.kv_tokens if candidate.service.context is not None else reach(candidate)
        room = Criterion(-held, "holds less context")
        yield from (poor, depth, room, level, fast, native, finest, cache)
    else:
        yield from (level, depth, small, fast, native, finest, cache)


def _simplicity(candidate: Candidate, place: int) -> Iterator[Criterion]:
    parallel = candidate.parallel
    # Stages wait for each other, ranks do not: a pipeline counts double.
    sizes = (parallel.tensor, parallel.pipeline, parallel.pipeline, parallel.data, parallel.expert)
    yield Criterion(sum(size > 1 for size in sizes) + len(candidate.gpu_indices), "needs more parallelism or more GPUs")
    yield Criterion(_ORDER[candidate.engine.name], "is equal, but its engine is lower in order of preference")
    yield Criterion(place, "is equal, but comes later in the catalogue")


def _is_native(candidate: Candidate) -> bool:
    """Whether the GPUs compute in the checkpoint's format; otherwise the engine converts the weights on the fly."""
    support = candidate.format_support
    return support is None or all(support.native_on(capability) for capability in candidate.capabilities)


def _computes_in_few_bits(candidate: Candidate) -> bool:
    """Whether the checkpoint is in FP8, NVFP4 or the like and its GPUs compute in it: prompts gain most by that."""
    support, checkpoint = candidate.format_support, candidate.checkpoint
    few = checkpoint.weight_format not in ("bf16", "gguf") and not checkpoint.scheme.endswith("_a16")
    return few and support is not None and bool(candidate.gpus) and _is_native(candidate)


def reach(candidate: Candidate) -> int:
    """The longest context that fits, or that of a candidate that leaves less than the margin, if it is longer."""
    larger = with_largest_context(candidate)
    return max(candidate.context, larger.context if larger else 0)


def ranked(candidates: tuple[Candidate, ...]) -> tuple[Score, ...]:
    """Best first. The same candidates always come in the same order.

    Speeds count in steps below the fastest of those that are equal in everything before speed.
    """
    scores = [scored(candidate, place) for place, candidate in enumerate(candidates)]
    before = [_before_speed(score) for score in scores]
    fastest: dict[tuple[float, ...], float] = {}
    for equal, score in zip(before, scores, strict=True):
        fastest[equal] = max(score.speed, fastest.get(equal, 0.0))
    stepped = [_with_steps(score, fastest[equal]) for equal, score in zip(before, scores, strict=True)]
    return tuple(sorted(stepped, key=lambda score: score.key))


def _before_speed(score: Score) -> tuple[float, ...]:
    """The criteria that come before speed, as numbers."""
    reasons = [criterion.why for criterion in score.preferences]
    return values((*score.necessities, *score.preferences[: reasons.index(_SLOWER)]))


def _with_steps(score: Score, fastest: float) -> Score:
    """The score with its speed in whole steps below the fastest."""
    steps = math.floor(math.log(fastest / score.speed, _SPEED_STEP)) if score.speed > 0 else math.inf
    changed = (Criterion(steps, _SLOWER) if each.why == _SLOWER else each for each in score.preferences)
    return score._replace(preferences=tuple(changed))


def losing_reason(loser: Score, winner: Score) -> str:
    """The reason of the first criterion, by weight, in which the winner is better."""
    for lost, won in zip(loser.criteria, winner.criteria, strict=True):
        if lost.value > won.value:
            return lost.why
    return loser.criteria[-1].why


def chosen(order: tuple[Score, ...]) -> Candidate:
    """The best candidate of an order, with larger steps for prompts where it has room for them.

    A context that the service leaves open may lose a part of its length for them, down to what must fit, unless the
    service prefers context.
    """
    best = with_most_context(order)
    if best.service.context is not None:
        return with_larger_steps(best, best.context) or best
    part = 1 if best.service.prefer == "context" else CONTEXT_BESIDE_STEPS
    kept = int(best.context * part / CONTEXT_STEP) * CONTEXT_STEP
    shorter = with_larger_steps(best, max(kept, order[0].candidate.context))
    return allowed_context(shorter) if shorter else best


def with_most_context(order: tuple[Score, ...]) -> Candidate:
    """The best candidate of an order, with the longest context that fits if the service sets none.

    Of candidates that differ only in GPUs and parallelism, takes the one with the longest context, then the first.
    """
    first = order[0]
    if first.candidate.service.context is not None:
        return first.candidate
    as_good = values((*first.necessities, *first.preferences))
    of_its_kind = first.candidate.checkpoint, first.candidate.engine.name
    equals = (
        score.candidate
        for score in order
        if (score.candidate.checkpoint, score.candidate.engine.name) == of_its_kind
        and values((*score.necessities, *score.preferences)) == as_good
    )
    # max returns the first of equals
    return max((allowed_context(candidate) for candidate in equals), key=lambda candidate: candidate.context)


def allowed_context(candidate: Candidate) -> Candidate:
    """A candidate that fits, with the longest context that fits as well and that no rule refuses."""
    larger = with_largest_context(candidate)
    return candidate if larger is None or larger.context < candidate.context or is_refused(larger) else larger


def with_largest_context(candidate: Candidate) -> Candidate | None:
    """The candidate with the longest context that fits, up to the model's, in steps of 1,024 tokens; None if none does.

    Every part of the GPU and every number of sequences is tried. Each GPU keeps the margin free that the figures need.
    What is offloaded stays as it is.
    """
    if (whole := fit_context(candidate, candidate.longest_context)) is not None:
        return whole
    best, low, high = None, 1, candidate.longest_context // CONTEXT_STEP
    while low <= high:
        middle = (low + high) // 2
        settled = fit_context(candidate, middle * CONTEXT_STEP)
        if settled is None:
            high = middle - 1
        else:
            best, low = settled, middle + 1
    return best
