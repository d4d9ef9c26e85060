"""Tries the settings of an engine's memory one after another, until what is asked for fits with the margin to spare."""

from __future__ import annotations

from dataclasses import replace

from rigup.planner.candidate import Candidate
from rigup.planner.engine_memory import Attempt
from rigup.planner.memory.fit import Shortfall, place_in_memory


def fit_memory(candidate: Candidate) -> Candidate | Shortfall:
    """The candidate settled. An engine gets other than its defaults only where those are not enough.

    Enough has the margin that the figures need; where nothing has, the first that fits.
    """
    settled = place_in_memory(candidate)
    if suffices(settled) or len(candidate.attempts) < 2:
        return settled
    if isinstance(settled, Shortfall):
        if settled.kind not in ("weights", "context"):
            return settled
        last = _attempted(candidate, candidate.attempts[-1])
        if isinstance(last, Shortfall) and not _of_shared_memory(last):
            return last
    outcomes = [settled]
    for attempt in candidate.attempts[1:]:
        outcomes.append(_attempted(candidate, attempt))
        if suffices(outcomes[-1]):
            return outcomes[-1]
    return next((found for found in outcomes if isinstance(found, Candidate)), outcomes[-1])


def fit_context(candidate: Candidate, context: int) -> Candidate | None:
    """The candidate with another context and whatever settings that needs; None where none leaves the margin."""
    first = candidate.attempts[0] if candidate.attempts else None
    again = replace(candidate, context=context)
    if first is not None:
        fraction, tokens, sequences = first
        again = replace(again, memory_fraction=fraction, batched_tokens=tokens, sequences=sequences)
    settled = fit_memory(again)
    return settled if isinstance(settled, Candidate) and suffices(settled) else None


def suffices(settled: Candidate | Shortfall) -> bool:
    """Whether it fits and leaves the margin."""
    return isinstance(settled, Candidate) and not settled.is_tight


def _of_shared_memory(short: Shortfall) -> bool:
    """Whether it is the host that lacks what a GPU without memory of its own was given more of."""
    return short.kind == "host" and any(gpu.unified_memory for gpu in short.candidate.gpus)


def _attempted(candidate: Candidate, attempt: Attempt) -> Candidate | Shortfall:
    fraction, tokens, sequences = attempt
    return place_in_memory(replace(candidate, memory_fraction=fraction, batched_tokens=tokens, sequences=sequences))
