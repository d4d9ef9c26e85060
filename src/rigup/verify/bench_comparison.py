"""What changed from one benchmark to another, and whether that is more than noise.

Each figure was also measured in parts of its level. How far the parts lie apart says how far the figure itself would
lie from that of another run of the same thing; a change counts when Welch's t-test finds it beyond that, at 99 %.
It knows of the noise within a run only: what differs from start to start of an engine, two runs of each would show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["better", "worse", "noise", "unknown"]

# Student's t, two-sided, 99 %: for 1, 2, ... degrees of freedom; beyond the last the normal distribution's
T99: tuple[float, ...] = (
    63.657,
    9.925,
    5.841,
    4.604,
    4.032,
    3.707,
    3.499,
    3.355,
    3.250,
    3.169,
    3.106,
    3.055,
    3.012,
    2.977,
    2.947,
)
T99 += (2.921, 2.898, 2.878, 2.861, 2.845)
T99_LIMIT = 2.576

# figure, its statistic ("" for a rate), whether more is better
FIGURES = (
    ("output_tokens_per_second", "", True),
    ("prompt_tokens_per_second", "", True),
    ("requests_per_second", "", True),
    *((name, part, False) for name in ("ttft_ms", "tpot_ms", "itl_ms") for part in ("mean", "p50", "p99")),
)
CONDITIONS = ("host", "service", "engine", "build", "checkpoint", "parallel", "context", "plan", "warmup")


@dataclass(frozen=True)
class Change:
    """One figure of one level before and after. percent: the change; noise: what it must exceed, None if unknown.

    figure: "output_tokens_per_second", "ttft_ms p99".
    """

    level: tuple[int, int, int]
    figure: str
    before: float
    after: float
    percent: float
    noise: float | None
    verdict: Verdict


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Every figure that both have, level by level (concurrency, tokens of prompt, tokens of answer)."""
    old = {_level(level): level for level in before["levels"]}
    found = []
    for level in after["levels"]:
        if (key := _level(level)) not in old:
            continue
        for name, statistic, more_is_better in FIGURES:
            sides = _side(old[key], name, statistic), _side(level, name, statistic)
            if sides[0] is not None and sides[1] is not None:
                figure = f"{name} {statistic}".strip()
                found.append(_change(key, figure, sides[0], sides[1], more_is_better))
    return found


def conditions(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """What else differs between two results, which the change may come from."""
    names = [(name, before.get(name), after.get(name)) for name in CONDITIONS]
    asked, answered = before["endpoint"], after["endpoint"]
    names += [
        (f"endpoint {name}", asked.get(name), answered.get(name)) for name in ("model", "version", "api", "prompts")
    ]
    return [(name, old, new) for name, old, new in names if old != new]


def _level(level: dict[str, Any]) -> tuple[int, int, int]:
    return level["concurrency"], level["input"], level["output"]


def _side(level: dict[str, Any], name: str, statistic: str) -> tuple[float, list[float]] | None:
    """A figure and its parts; None where the level has none."""
    figure = level[name]
    if figure is None or not figure[statistic or "mean"]:
        return None
    return (figure[statistic], figure["parts"][statistic]) if statistic else (figure["mean"], figure["parts"])


def _change(
    level: tuple[int, int, int],
    figure: str,
    old: tuple[float, list[float]],
    new: tuple[float, list[float]],
    more_is_better: bool,
) -> Change:
    (before, old_parts), (after, new_parts) = old, new
    percent = 100 * (after - before) / before
    margin = welch_margin(old_parts, new_parts)
    noise = None if margin is None else 100 * margin / before
    verdict: Verdict = "unknown"
    if noise is not None:
        verdict = "noise" if abs(percent) <= noise else "better" if (percent > 0) == more_is_better else "worse"
    return Change(level, figure, before, after, percent, noise, verdict)


def welch_margin(first: Sequence[float], second: Sequence[float]) -> float | None:
    """By how much the means of two samples must differ to be told apart at 99 %; None for samples of less than two."""
    if min(len(first), len(second)) < 2:
        return None
    errors = [_variance(sample) / len(sample) for sample in (first, second)]
    total = sum(errors)
    if not total:
        return 0.0
    freedom = total**2 / sum(
        error**2 / (len(sample) - 1) for error, sample in zip(errors, (first, second), strict=True)
    )
    whole = max(1, math.floor(freedom))
    return (T99[whole - 1] if whole <= len(T99) else T99_LIMIT) * math.sqrt(total)


def _variance(sample: Sequence[float]) -> float:
    mean = sum(sample) / len(sample)
    return sum((value - mean) ** 2 for value in sample) / (len(sample) - 1)
