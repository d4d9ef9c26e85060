"""Decides whether a tuned table wins: compares times of runs with and without it, given their spread. Pure.

The runs of both sides alternate, so that a GPU that warms up slows both. A table wins if its slowest run is faster than
the fastest run without it: with 5 runs each, that happens by chance once in 252 times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from rigup.catalogue.moe_configs import Measurement

LEAST_RUNS = 5  # with 3 runs, one of two equal tables would win in 1 of 20 times
RUNS = 5


@dataclass(frozen=True)
class Gain:
    """The result of a tuning.

    baseline, tuned: for each run, the geometric mean over the numbers of tokens, microseconds.
    slower: numbers of tokens for which every run with the table was slower than every one without.
    """

    baseline: tuple[float, ...]
    tuned: tuple[float, ...]
    rows: tuple[Measurement, ...]
    slower: tuple[int, ...]

    @property
    def wins(self) -> bool:
        """Whether all tuned runs are faster than all baseline runs."""
        return max(self.tuned) < min(self.baseline)

    @property
    def percent(self) -> float:
        """How much less time the kernel takes, by the medians; negative if it takes more."""
        return 100 * (1 - median(self.tuned) / median(self.baseline))

    @property
    def text(self) -> str:
        """A readable text: "7.3 % less kernel time ..."."""
        what = f"{abs(self.percent):.1f} % {'less' if self.percent >= 0 else 'more'} kernel time"
        return (
            f"{what}: {_range(self.baseline)} before, {_range(self.tuned)} tuned "
            f"(geometric means over {len(self.rows)} numbers of tokens, medians of {len(self.tuned)} runs)"
        )


def gain_of(times: dict[str, list[dict[str, float]]]) -> Gain:
    """Computes the gain from a host's times: {"baseline": [{"1": us, ...}, ...], "tuned": [...]}."""
    before, after = times["baseline"], times["tuned"]
    tokens = sorted((int(count) for count in before[0]), key=int)
    rows = tuple(Measurement(tokens=n, baseline_us=_middle(before, n), tuned_us=_middle(after, n)) for n in tokens)
    slower = tuple(n for n in tokens if min(run[str(n)] for run in after) > max(run[str(n)] for run in before))
    return Gain(tuple(map(_mean, before)), tuple(map(_mean, after)), rows, slower)


def _middle(runs: list[dict[str, float]], tokens: int) -> float:
    return round(median(run[str(tokens)] for run in runs), 2)


def _mean(run: dict[str, float]) -> float:
    """The geometric mean, so that every number of tokens has the same weight."""
    return math.exp(sum(math.log(time) for time in run.values()) / len(run))


def _range(times: tuple[float, ...]) -> str:
    return f"{median(times):.1f} us ({min(times):.1f} to {max(times):.1f})"
