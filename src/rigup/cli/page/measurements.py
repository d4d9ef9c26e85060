"""Selects what the page shows of stored benchmarks: results, levels, and their history. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rigup.bench.comparison import level_of

Result = dict[str, Any]
Level = dict[str, Any]
# concurrency, tokens of prompt, tokens of answer
Key = tuple[int, int, int]
# no valid figure of a benchmark is larger
MOST = 1e12


@dataclass(frozen=True)
class Sweep:
    """Two or more levels of one result with the same lengths, by ascending concurrency."""

    result: Result
    input: int
    output: int
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class RunRate:
    """One figure of one run: seconds since 1970, output tokens per second, the service's release ("" if unknown)."""

    time: float
    rate: float
    release: str


@dataclass(frozen=True)
class LevelHistory:
    """The same level over several runs, oldest first."""

    key: Key
    rates: tuple[RunRate, ...]


def usable(result: Any) -> bool:
    """Whether a stored result has everything that the page draws; a folder may contain other files."""
    try:
        began(result)
        kinds = [(result["endpoint"], dict), (result["levels"], list)]
        kinds += [(result.get(key, []), list) for key in ("notes", "drift")]
        return all(isinstance(value, kind) for value, kind in kinds) and all(map(_usable_level, result["levels"]))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return False


def _usable_level(level: Level) -> bool:
    rates = ("output_tokens_per_second", "prompt_tokens_per_second", "requests_per_second")
    numbers = [*level_of(level), *(level[name]["mean"] for name in rates), level["requests"]["failed"]]
    for name in ("ttft_ms", "tpot_ms", "itl_ms"):
        numbers += [level[name][part] for part in ("mean", "p50", "p95", "p99", "count")] if level[name] else []
    engine = level["engine"]
    numbers += [engine["running_most"], engine["queued"], int(engine["capped"])] if engine else []
    sound = all(isinstance(value, (int, float)) and 0 <= value <= MOST for value in numbers)
    return sound and isinstance(level["complete"], bool)


def is_capped(level: Level) -> bool:
    """Whether the engine ran fewer requests than were sent at once, and queued the rest."""
    return bool(level["engine"] and level["engine"]["capped"])


def sweeps(results: Sequence[Result]) -> list[Sweep]:
    """The sweeps of the newest result with any, one for each pair of lengths. results: newest first."""
    for result in results:
        if found := _sweeps_of(result):
            return found
    return []


def before(sweep: Sweep, results: Sequence[Result]) -> Sweep | None:
    """The sweep with the same lengths in the latest earlier result. results: newest first."""
    older = [result for result in results if result["began"] < sweep.result["began"]]
    same = (s for result in older for s in _sweeps_of(result) if (s.input, s.output) == (sweep.input, sweep.output))
    return next(same, None)


def singles(results: Sequence[Result]) -> tuple[Result, tuple[Level, ...]] | None:
    """The newest result that is not a sweep, with its answered levels. results: newest first."""
    for result in results:
        levels = tuple(level for level in result["levels"] if level["ttft_ms"])
        if levels and not _sweeps_of(result):
            return result, levels
    return None


def histories(results: Sequence[Result]) -> list[LevelHistory]:
    """The levels measured in more than one run: the one with the most runs, then the fastest with three or more."""
    found: dict[Key, list[RunRate]] = {}
    for result in sorted(results, key=lambda one: str(one["began"])):
        for level in result["levels"]:
            if level["complete"] and level["output_tokens_per_second"]["mean"] > 0:
                rate = float(level["output_tokens_per_second"]["mean"])
                run_rate = RunRate(began(result), rate, str(result.get("release") or ""))
                found.setdefault(level_of(level), []).append(run_rate)
    all_of_them = [LevelHistory(key, tuple(rates)) for key, rates in found.items() if len(rates) > 1]
    if not all_of_them:
        return []
    first = max(all_of_them, key=lambda history: len(history.rates))
    others = [history for history in all_of_them if history is not first and len(history.rates) > 2]
    return [first, max(others, key=lambda history: history.rates[-1].rate)] if others else [first]


def began(result: Result) -> float:
    """When a run began, in seconds since 1970."""
    return datetime.fromisoformat(result["began"]).timestamp()


def best_rate(results: Sequence[Result]) -> float | None:
    """The maximum output tokens per second of the newest result; None without results."""
    rates = [level["output_tokens_per_second"]["mean"] for result in results[:1] for level in result["levels"]]
    return max(rates, default=None)


def _sweeps_of(result: Result) -> list[Sweep]:
    groups: dict[tuple[int, int], dict[int, Level]] = {}
    for level in result["levels"]:
        if level["ttft_ms"]:
            groups.setdefault((level["input"], level["output"]), {})[level["concurrency"]] = level
    return [
        Sweep(result, *lengths, tuple(levels[concurrency] for concurrency in sorted(levels)))
        for lengths, levels in groups.items()
        if len(levels) > 1
    ]
