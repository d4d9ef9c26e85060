"""Compares two evaluations and tells differences from chance. Pure.

If both asked the same questions, it compares them question by question, which detects far smaller differences than two
averages do; otherwise it uses the standard errors of both scores. A difference counts beyond 1.96 standard errors,
which chance alone exceeds in one comparison of twenty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import variance
from typing import Any, Literal

Verdict = Literal["better", "worse", "no significant difference", "unknown"]
BEYOND = 1.96
LEAST_QUESTIONS = 10
CONDITIONS = ("limit", "few_shot", "max_tokens", "prompts", "seed")


@dataclass(frozen=True)
class ScoreDifference:
    """One score in two evaluations. change: after minus before. stderr: of it, None if unknown.

    paired: whether it was compared question by question. why: the reason for the verdict "unknown".
    """

    task: str
    metric: str
    filter: str
    before: float
    after: float
    change: float
    stderr: float | None
    paired: bool
    questions: int | None
    verdict: Verdict
    why: str = ""


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[ScoreDifference]:
    """Every score that both evaluations have."""
    found = []
    for task, new in after["tasks"].items():
        old = before["tasks"].get(task)
        scores = {(s["metric"], s["filter"]): s for s in old["scores"]} if old else {}
        for score in new["scores"]:
            earlier = scores.get((score["metric"], score["filter"]))
            if old is not None and earlier is not None:
                found.append(_difference(task, old, new, earlier, score))
    return found


def _difference(
    task: str, old: dict[str, Any], new: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> ScoreDifference:
    same = bool(old["digest"]) and old["digest"] == new["digest"] and len(before["each"]) == len(after["each"]) > 0
    stderr = _paired(before["each"], after["each"]) if same else _apart(before["stderr"], after["stderr"])
    counts = [count for count in (old["questions"], new["questions"]) if count]
    questions = min(counts) if counts else None
    change = after["value"] - before["value"]
    verdict, why = _verdict(change, stderr, questions, after["higher_is_better"])
    if old["version"] != new["version"]:
        verdict, why = "unknown", f"task versions {old['version']} and {new['version']} differ"
    place = (task, after["metric"], after["filter"], before["value"], after["value"], change)
    return ScoreDifference(*place, stderr, same, questions, verdict, why)


def _verdict(
    change: float, stderr: float | None, questions: int | None, higher_is_better: bool | None
) -> tuple[Verdict, str]:
    if stderr is None:
        return "unknown", "the harness reports no standard error"
    if questions is not None and questions < LEAST_QUESTIONS:
        return "unknown", f"{questions} questions are too few"
    if higher_is_better is None:
        return "unknown", "the task does not define whether higher is better"
    if change == 0 or abs(change) <= BEYOND * stderr:
        return "no significant difference", ""
    return ("better" if (change > 0) == higher_is_better else "worse"), ""


def _paired(before: Sequence[float], after: Sequence[float]) -> float | None:
    """The standard error of the mean difference."""
    if len(before) < 2:
        return None
    return math.sqrt(variance(b - a for a, b in zip(before, after, strict=True)) / len(before))


def _apart(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else math.hypot(before, after)


def differing_conditions(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Differences in the conditions of both evaluations."""
    if before["harness"] != after["harness"]:
        yield "lm_eval", before["harness"], after["harness"]
    for key in CONDITIONS:
        old, new = before["conditions"].get(key), after["conditions"].get(key)
        if old != new:
            yield key.replace("_", " "), old, new
