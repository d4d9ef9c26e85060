"""Tries an engine's memory settings one after another until the requested context fits with the margin free."""

from __future__ import annotations

from dataclasses import replace

from rigup.planner.candidate import Candidate
from rigup.planner.engine_memory import OFFLOAD_MICRO_BATCH, Attempt
from rigup.planner.memory.fit import Shortfall, place_in_memory

_STEP_OPTIONS = ("--ubatch-size", "-ub", "--batch-size", "-b")


def fit_memory(candidate: Candidate) -> Candidate | Shortfall:
    """The candidate with its memory computed; changes an engine's default settings only if necessary.

    Prefers the first attempt that leaves the margin free, then the first that fits.
    """
    settled = place_in_memory(candidate)
    if suffices(settled) or len(candidate.attempts) < 2:
        return settled
    if isinstance(settled, Shortfall):
        if settled.kind not in ("weights", "context", "sequences"):
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
    """The candidate with another context and the settings that it needs; None if none of them leaves the margin."""
    first = candidate.attempts[0]._asdict() if candidate.attempts else {}
    settled = fit_memory(replace(candidate, context=context, **first))
    return settled if isinstance(settled, Candidate) and suffices(settled) else None


def with_larger_steps(settled: Candidate, context: int) -> Candidate | None:
    """The same with larger steps for prompts and this context, if llama.cpp copies experts to a GPU for each.

    None where the margin does not stay free, or where it is not known what such steps take. A service's own
    --ubatch-size or --batch-size stays as it is.
    """
    known = all(entry.step_is_known for entry in settled.model.attention)
    if not known or not settled.copies_experts or any(name in settled.service.flags for name in _STEP_OPTIONS):
        return None
    attempts = tuple(attempt._replace(batched_tokens=OFFLOAD_MICRO_BATCH) for attempt in settled.attempts)
    stepped = replace(settled, context=context, batched_tokens=OFFLOAD_MICRO_BATCH, attempts=attempts)
    larger = place_in_memory(stepped)
    return larger if isinstance(larger, Candidate) and suffices(larger) else None


def suffices(settled: Candidate | Shortfall) -> bool:
    """Whether the candidate fits and leaves the margin."""
    return isinstance(settled, Candidate) and not settled.is_tight


def _of_shared_memory(short: Shortfall) -> bool:
    """Whether the host lacks memory because a GPU that shares it was given more."""
    return short.kind == "host" and any(gpu.unified_memory for gpu in short.candidate.gpus)


def _attempted(candidate: Candidate, attempt: Attempt) -> Candidate | Shortfall:
    return place_in_memory(replace(candidate, **attempt._asdict()))
