"""Which of the possibilities that fit is best: all in GPU memory, the margin, then quality, speed and simplicity."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rigup.planner.candidate import Candidate
from rigup.planner.memory.fit import Shortfall, place_in_memory
from rigup.planner.memory.weights import bits_per_weight
from rigup.planner.rules import is_refused
from rigup.planner.speed import decode_speed

CONTEXT_STEP = 1024
_LOSSY_CACHE = ("q5_1", "q4_0")
_FULL_CACHE = ("f16", "bf16")
_SPEED_STEP = 1.1
_ORDER = {"vllm": 0, "sglang": 1, "llama.cpp": 2}
_WHY = (
    "keeps weights in host memory, or sends them over PCIe for every token",
    "quantises the KV cache to fewer than 8 bits",
    "has pruned experts",
    "leaves so little GPU memory free that it may fail to start",
    "has fewer bits per weight",
    "quantises the KV cache to 8 bits",
    "is estimated to be slower",
    "needs more parallelism or more GPUs",
    "is equal, but its engine is lower in order of preference",
    "is equal, but comes later in the catalogue",
)


@dataclass(frozen=True, slots=True)
class Score:
    """How good a candidate is; the smaller tuple wins. `place` is its turn in the enumeration, for a stable order.

    Quality is counted in quarters of a bit a weight, up to what the maker publishes: nothing in the catalogue
    says that a smaller difference can be noticed. Speed is counted in steps of a tenth.
    """

    candidate: Candidate
    key: tuple[float, ...]


def merit(candidate: Candidate, place: int) -> Score:
    """Ranks one candidate that fits."""
    model, parallel = candidate.model, candidate.parallel
    bits = min(bits_per_weight(candidate.checkpoint, model), model.reference_bits)
    speed = decode_speed(candidate, candidate.service.concurrency)
    # Experts on the host are computed there; vLLM's offload sends the weights over PCIe for every token.
    offload = 2 if candidate.cpu_offload_gib else int(candidate.cpu_moe_layers > 0)
    asked_to_offload = candidate.service.offload == "experts"
    # Stages wait for each other, ranks do not: a pipeline counts double.
    sizes = (parallel.tensor, parallel.pipeline, parallel.pipeline, parallel.data, parallel.expert)
    key = (
        float(max(0, offload - asked_to_offload)),
        float(candidate.kv_cache_type in _LOSSY_CACHE),
        float(candidate.checkpoint.pruned),
        float(candidate.is_tight),
        -float(round(bits * 4)),
        float(candidate.kv_cache_type not in _FULL_CACHE),
        -_speed_class((speed.low * speed.high) ** 0.5),
        float(sum(size > 1 for size in sizes) + len(candidate.gpu_indices)),
        float(_ORDER[candidate.engine.name]),
        float(place),
    )
    return Score(candidate, key)


def _speed_class(tokens_per_second: float) -> float:
    steps, value = 0, 1.0
    while value < tokens_per_second:
        value *= _SPEED_STEP
        steps += 1
    return float(steps)


def ranked(candidates: tuple[Candidate, ...]) -> tuple[Score, ...]:
    """Best first. The same candidates always come in the same order."""
    return tuple(sorted((merit(c, place) for place, c in enumerate(candidates)), key=lambda m: m.key))


def losing_reason(loser: Score, winner: Score) -> str:
    """The first thing, in order of weight, that the winner does better."""
    for lost, won, reason in zip(loser.key, winner.key, _WHY, strict=True):
        if lost > won:
            return reason
    return _WHY[-1]


def allowed_context(candidate: Candidate) -> Candidate:
    """A candidate that fits, with the longest context that fits as well and that no rule refuses."""
    larger = with_largest_context(candidate)
    return candidate if larger is None or larger.context < candidate.context or is_refused(larger) else larger


def with_largest_context(candidate: Candidate) -> Candidate | None:
    """The candidate with the longest context that fits, up to the model's, in steps of 1,024 tokens; None if none does.

    Each GPU keeps the margin free that the figures need. What is offloaded stays as it is.
    """
    if (whole := _settled_with(candidate, candidate.model.context)) is not None:
        return whole
    best, low, high = None, 1, candidate.model.context // CONTEXT_STEP
    while low <= high:
        middle = (low + high) // 2
        settled = _settled_with(candidate, middle * CONTEXT_STEP)
        if settled is None:
            high = middle - 1
        else:
            best, low = settled, middle + 1
    return best


def _settled_with(candidate: Candidate, context: int) -> Candidate | None:
    settled = place_in_memory(replace(candidate, context=context))
    return None if isinstance(settled, Shortfall) or settled.is_tight else settled
