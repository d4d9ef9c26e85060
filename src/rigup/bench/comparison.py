"""Compares two benchmarks and tells changes from noise.

Each figure was also measured in parts of its level. The spread of these parts shows how much the figure would vary
between runs of the same thing; a change counts if Welch's t-test finds it significant at 99 %. This covers the noise
within a run only: differences between starts of an engine show in repeated runs. The shares of failed requests are
compared as two proportions, also at 99 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import variance
from typing import Any, Literal

Verdict = Literal["better", "worse", "noise", "unknown"]

# Student's t, two-sided, 99 %: for 1, 2, ... degrees of freedom; beyond the last the normal distribution's
T99 = (
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
    3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
)  # fmt: skip
T99_LIMIT = 2.576

# figure, its statistic ("" for a rate), whether more is better
FIGURES = (
    ("output_tokens_per_second", "", True),
    ("prompt_tokens_per_second", "", True),
    ("requests_per_second", "", True),
    *((name, part, False) for name in ("ttft_ms", "tpot_ms", "itl_ms") for part in ("mean", "p50", "p99")),
)
FAILED = "failed_requests_percent"
CONDITIONS = ("host", "service", "engine", "build", "checkpoint", "parallel", "context", "plan", "warmup")


@dataclass(frozen=True)
class FigureChange:
    """One figure of one level before and after. percent: the change; noise: what it must exceed, None if unknown.

    figure: "output_tokens_per_second", "ttft_ms p99". For "failed_requests_percent" both are percentage points, because
    a share of 0 has no relative change. concurrency, input, output: the level, in requests and tokens.
    """

    concurrency: int
    input: int
    output: int
    figure: str
    before: float
    after: float
    percent: float
    noise: float | None
    verdict: Verdict


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[FigureChange]:
    """Every figure that both results have, level by level (concurrency, prompt tokens, answer tokens)."""
    old = {level_of(level): level for level in before["levels"]}
    return [
        change
        for level in after["levels"]
        if (earlier := old.get(level_of(level)))
        for change in (*_figures(earlier, level), *_failures(earlier, level))
    ]


def _figures(old: dict[str, Any], new: dict[str, Any]) -> Iterator[FigureChange]:
    """Figures of a level; one without answers is worse than one with some, unless it was interrupted."""
    silent = not new["requests"]["all"]
    if silent and not new["complete"]:
        return
    for name, statistic, more_is_better in FIGURES:
        before, after = _side(old, name, statistic), _side(new, name, statistic)
        if before and after and before[0]:
            change = _change(level_of(new), f"{name} {statistic}".strip(), before, after, more_is_better)
            yield replace(change, verdict="worse") if silent and old["requests"]["all"] else change


def _failures(old: dict[str, Any], new: dict[str, Any]) -> Iterator[FigureChange]:
    """The change in failed requests, if any failed."""
    requests = old["requests"], new["requests"]
    failed = [counts["failed"] for counts in requests]
    ended = [counts["failed"] + counts["all"] for counts in requests]
    if not any(failed) or not all(ended):
        return
    before, after = (100 * count / of for count, of in zip(failed, ended, strict=True))
    share = sum(failed) / sum(ended)
    noise = 100 * T99_LIMIT * math.sqrt(share * (1 - share) * sum(1 / of for of in ended))
    points = after - before
    verdict: Verdict = "noise" if abs(points) <= noise else "better" if points < 0 else "worse"
    yield FigureChange(*level_of(new), FAILED, before, after, points, noise, verdict)


def conditions(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Other differences between two results that may explain a change."""
    names = [(name, before.get(name), after.get(name)) for name in CONDITIONS]
    asked, answered = before["endpoint"], after["endpoint"]
    names += [
        (f"endpoint {name}", asked.get(name), answered.get(name)) for name in ("model", "version", "api", "prompts")
    ]
    return [(name, old, new) for name, old, new in names if old != new]


def level_of(level: dict[str, Any]) -> tuple[int, int, int]:
    """The key by which levels of two results match."""
    return level["concurrency"], level["input"], level["output"]


def _side(level: dict[str, Any], name: str, statistic: str) -> tuple[float, list[float]] | None:
    """A figure and its parts; None if the level has none."""
    figure = level[name]
    if figure is None:
        return None
    return (figure[statistic], figure["parts"][statistic]) if statistic else (figure["mean"], figure["parts"])


def _change(
    level: tuple[int, int, int],
    figure: str,
    old: tuple[float, list[float]],
    new: tuple[float, list[float]],
    more_is_better: bool,
) -> FigureChange:
    (before, old_parts), (after, new_parts) = old, new
    percent = 100 * (after - before) / before
    margin = welch_margin(old_parts, new_parts)
    noise = None if margin is None else 100 * margin / before
    verdict: Verdict = "unknown"
    if noise is not None:
        verdict = "noise" if abs(percent) <= noise else "better" if (percent > 0) == more_is_better else "worse"
    return FigureChange(*level, figure, before, after, percent, noise, verdict)


def welch_margin(first: Sequence[float], second: Sequence[float]) -> float | None:
    """How much the means of two samples must differ to be significant at 99 %; None for fewer than two values."""
    if min(len(first), len(second)) < 2:
        return None
    errors = [variance(sample) / len(sample) for sample in (first, second)]
    total = sum(errors)
    if not total:
        return 0.0
    freedom = total**2 / sum(
        error**2 / (len(sample) - 1) for error, sample in zip(errors, (first, second), strict=True)
    )
    whole = max(1, math.floor(freedom))
    return (T99[whole - 1] if whole <= len(T99) else T99_LIMIT) * math.sqrt(total)
