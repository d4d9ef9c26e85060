"""How long each step of a host took, which steps the end waited for, and both in one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rigup.run.chains.order import REBOOT
from rigup.units import seconds_text

LAST = "start"
"""The step that follows all others in the line, whatever ran beside them."""
JOINT_S = 0.5
"""How much earlier than the start of a step another may have ended for the step to have waited for it."""


@dataclass(frozen=True)
class Span:
    """A part of a step, without a pause. began, ended: in seconds of any clock. beside: it ran beside other steps.

    bytes: how much it downloaded, 0 if that is not known.
    """

    step: str
    began: float
    ended: float
    beside: bool = False
    bytes: int = 0


@dataclass(frozen=True)
class StepTime:
    """All parts of a step together. critical: the end of the run waited for it."""

    step: str
    seconds: float
    beside: bool
    critical: bool
    bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        """As JSON values; `bytes` only if they are known."""
        values = {
            "step": self.step,
            "seconds": round(self.seconds, 1),
            "beside": self.beside,
            "critical": self.critical,
        }
        return values | ({"bytes": self.bytes} if self.bytes else {})

    @classmethod
    def of_record(cls, step: Mapping[str, Any]) -> StepTime:
        """From a checked record."""
        return cls(step["step"], step["seconds"], step["beside"], step["critical"], step.get("bytes", 0))


def without_reboots(span: Span, reboots: Iterable[tuple[float, float]]) -> list[Span]:
    """The parts of a span before, during and after each reboot in it."""
    found, began = [], span.began
    for down, up in sorted(reboots):
        if span.began <= down and up <= span.ended:
            found += [Span(span.step, began, down, span.beside), Span(REBOOT, down, up, span.beside)]
            began = up
    return [*found, Span(span.step, began, span.ended, span.beside)]


def step_times(spans: Sequence[Span]) -> tuple[StepTime, ...]:
    """The time of each step: those that followed one another, then those beside them, then the start."""
    path = _critical(spans)
    found: dict[tuple[str, bool], StepTime] = {}
    for span in sorted(spans, key=lambda each: (each.step == LAST, each.beside)):
        key = (span.step, span.beside)
        so_far = found.get(key)
        seconds = span.ended - span.began + (so_far.seconds if so_far else 0.0)
        critical = span in path or (so_far is not None and so_far.critical)
        loaded = span.bytes + (so_far.bytes if so_far else 0)
        found[key] = StepTime(span.step, seconds, span.beside, critical, loaded)
    return tuple(found.values())


def _critical(spans: Sequence[Span]) -> list[Span]:
    """The spans that the last one waited for, directly or not: each began when the one before it ended."""
    left = sorted(spans, key=lambda span: (span.ended, not span.beside))  # a reboot follows its own step
    path = [left.pop()] if left else []
    while left:
        last = left.pop()
        if last.ended <= path[-1].began + JOINT_S:
            path.append(last)
    return path


def in_words(times: Sequence[StepTime]) -> list[tuple[str, StepTime]]:
    """The line in parts, each with what separates it from the part before: "" at first, " · " or " | "."""
    found: list[tuple[str, StepTime]] = []
    for number, time in enumerate(times):
        begins_others = time.beside and not times[number - 1].beside
        found.append(("" if not number else " | " if begins_others else " · ", time))
    return found


def line(times: Sequence[StepTime]) -> str:
    """base 12.0 s · driver 3 min 10 s · reboot 1 min 40 s | weights 19 min 04 s · start 1 min 31 s"""
    return "".join(f"{separator}{time.step} {seconds_text(time.seconds)}" for separator, time in in_words(times))
