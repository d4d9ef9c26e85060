"""Tasks of a new user: what each needs, and how a list of them is walked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

OK, FAILED, NOT_TRIED = "ok", "failed", "not tried"


@dataclass(frozen=True)
class Task:
    """Something that a user does. does: returns what is worth telling; raises where it did not truly work."""

    name: str
    does: Callable[[Any], str]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a task went. note: what is worth telling, or why it failed or was not tried."""

    task: str
    result: str
    seconds: float
    note: str


def walked(tasks: Iterable[Task], user: object) -> Iterator[Outcome]:
    """Does one task after another; one that needs what failed is not tried."""
    lost: set[str] = set()
    for task in tasks:
        missing = [name for name in task.needs if name in lost]
        if missing:
            lost.add(task.name)
            yield Outcome(task.name, NOT_TRIED, 0.0, f"needs: {', '.join(missing)}")
            continue
        began = time.perf_counter()
        try:
            result, note = OK, task.does(user)
        except Exception as error:  # whatever it is, the rest is walked
            lost.add(task.name)
            result, note = FAILED, f"{type(error).__name__}: {error}"
        yield Outcome(task.name, result, time.perf_counter() - began, note)


def slowest(outcomes: Iterable[Outcome]) -> Outcome:
    """The task that took longest."""
    return max(outcomes, key=lambda outcome: outcome.seconds)
