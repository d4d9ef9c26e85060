"""How long the pending changes of a host will take, as the same steps took in earlier applies of the fleet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rigup.run.chains.order import REBOOT, STEPS, all_needs
from rigup.run.chains.timing import Span, StepTime, step_times

WEIGHTS = "weights"


@dataclass(frozen=True)
class Estimate:
    """seconds: from the first step to the end of the last. times: of each step."""

    seconds: float
    times: tuple[StepTime, ...]


def newest_times(records: Iterable[Mapping[str, Any]]) -> dict[str, StepTime]:
    """What each step took the last time, from the records of several hosts. Only applies that ended well count.

    A reboot is part of the driver. Weights count as a rate: only records with their bytes.
    """
    found: dict[str, StepTime] = {}
    for record in sorted(records, key=lambda each: str(each["when"])):
        times = {time.step: time for time in map(StepTime.of_record, record.get("steps", ()))}
        if record["result"] != "changed":
            continue
        if (driver := times.get("driver")) and (reboot := times.pop(REBOOT, None)):
            times["driver"] = replace(driver, seconds=driver.seconds + reboot.seconds)
        found |= {name: time for name, time in times.items() if name != WEIGHTS or time.bytes}
    return found


def estimate(
    pending: Collection[str], past: Mapping[str, StepTime], weights_bytes: int, rate: float | None = None
) -> Estimate | None:
    """The estimate for steps with these names; None if one of the longer ones has never been timed.

    weights_bytes: how much is to be downloaded. rate: bytes per second as measured; None for those of the last time.
    """
    if rate and WEIGHTS in pending:
        past = {
            **past,
            WEIGHTS: StepTime(WEIGHTS, weights_bytes / rate, beside=True, critical=False, bytes=weights_bytes),
        }
    spans: list[Span] = []
    ends: dict[str, float] = {}
    turn = 0.0
    for step in STEPS:
        if step.name not in pending:
            continue
        if step.name not in past:
            if step.name in ("removal", "network", "power limit"):  # seconds
                continue
            return None
        known = past[step.name]
        seconds = known.seconds * weights_bytes / known.bytes if step.name == WEIGHTS else known.seconds
        began = max([0.0 if step.beside else turn, *(ends.get(name, 0.0) for name in all_needs(step))])
        ends[step.name] = began + seconds
        turn = turn if step.beside else ends[step.name]
        spans.append(Span(step.name, began, ends[step.name], step.beside))
    return Estimate(max(ends.values()), step_times(spans)) if ends else None
