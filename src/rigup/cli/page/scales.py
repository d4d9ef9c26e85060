"""Positions of values on an axis, and the values with labels. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

DAY = 86400
LEAST_DECADE = -4
# labels on a linear axis or one of times, and on a logarithmic one
FEW_TICKS, MOST_TICKS = 4, 6


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, drawn from `begin` to `end` in pixels (for a y axis `begin` is below and larger).

    ticks: the values with a label; `label` creates it.
    """

    low: float
    high: float
    begin: float
    end: float
    ticks: tuple[float, ...]
    label: Callable[[float], str]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The position of a value in pixels; values beyond the axis are at its end."""
        measure = math.log if self.logarithmic else float
        value = min(max(value, self.low), self.high)
        low, high = measure(self.low), measure(self.high)
        share = (measure(value) - low) / (high - low) if high > low else 0.5
        return self.begin + share * (self.end - self.begin)


def from_zero(most: float, begin: float, end: float) -> Scale:
    """A linear axis from 0 to the round number at or above `most`, in a few round steps."""
    most = most or 1.0
    step = _round_step(most / FEW_TICKS)
    steps = max(1, math.ceil(most / step - 1e-9))
    return Scale(0, steps * step, begin, end, tuple(step * n for n in range(steps + 1)), short)


def powers_of_two(values: Sequence[float], begin: float, end: float) -> Scale:
    """A logarithmic axis over the powers of two around these values (at least 1), every one or every nth labelled."""
    low = math.floor(math.log2(max(1, min(values))))
    high = max(low, math.ceil(math.log2(max(1, *values))))
    every = max(1, math.ceil((high - low + 1) / MOST_TICKS))
    ticks = tuple(float(2**n) for n in range(low, high + 1, every))
    return Scale(2.0**low, 2.0**high, begin, end, ticks, lambda value: f"{value:,.0f}", logarithmic=True)


def decades(values: Sequence[float], begin: float, end: float) -> Scale:
    """A logarithmic axis from the 1, 2 or 5 below these values to the one above."""
    known = [value for value in values if value > 0] or [1.0]
    last = max(LEAST_DECADE, math.ceil(math.log10(max(known))))
    steps = [m * 10.0**n for n in range(LEAST_DECADE, last + 1) for m in (1, 2, 5)]
    low = max(step for step in steps if step <= min(known) * (1 + 1e-9) or step == steps[0])
    high = min(step for step in steps if step >= max(known) * (1 - 1e-9))
    if high <= low:
        high = min(step for step in steps if step > low)
    ticks = [step for step in steps if low <= step <= high]
    if len(ticks) > MOST_TICKS:
        ticks = [step for step in ticks if f"{step:e}".startswith("1")]
        ticks = ticks[:: math.ceil(len(ticks) / MOST_TICKS)]
    return Scale(low, high, begin, end, tuple(ticks), short, logarithmic=True)


def times(values: Sequence[float], begin: float, end: float) -> Scale:
    """An axis of times (seconds since 1970, UTC), labelled with days, or with hours if it covers less than two days."""
    low, high = min(values), max(values)
    if high - low < 2 * DAY:
        steps, form = (60, 300, 900, 1800, 3600, 7200, 21600, 43200), "%H:%M"
        step = next((step for step in steps if step >= (high - low) / FEW_TICKS), steps[-1])
    else:
        step, form = math.ceil((high - low) / DAY / FEW_TICKS) * DAY, "%-d %b"
    first = math.ceil(low / step) * step
    ticks = tuple(float(first + step * n) for n in range(FEW_TICKS + 1) if first + step * n <= high)
    return Scale(low, high, begin, end, ticks or (low,), lambda timestamp: _timestamp_text(timestamp, form))


def short(value: float) -> str:
    """A number for a label, with three digits: 0.5, 12, 340, 2k, 1.5k, 20k, 3M."""
    value = float(f"{value:.3g}")  # 999.6 is 1k already
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions for labels, as close as possible to `wanted`, at least `gap` apart, within the bounds, in order."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = [0.0] * len(wanted)
    last = low - gap
    for index in order:
        last = placed[index] = max(wanted[index], last + gap)
    last = high + gap
    for index in reversed(order):
        last = placed[index] = min(placed[index], last - gap)
    return placed


def _round_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    return next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= least * (1 - 1e-9))


def _timestamp_text(timestamp: float, form: str) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime(form)
