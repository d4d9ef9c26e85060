"""How long the pending changes of a host will take, as the same steps took in earlier applies of the fleet. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rigup.run.chains.order import REBOOT, STEPS, all_needs, step_of
from rigup.run.chains.timing import Span, StepTime, step_times

WEIGHTS = "weights"


@dataclass(frozen=True)
class Estimate:
    """seconds: from the first step to the end of the last. times: of each step."""

    seconds: float
    times: tuple[StepTime, ...]


def kinds_of(changes: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """What is done in each step, from the roles and names of changes: "load driver" and "driver held", not for which
    version or service.
    """
    found: dict[str, set[str]] = {}
    for role, name in changes:
        words = [word for word in name.partition(":")[0].split() if not re.search("[0-9]", word)]
        found.setdefault(step_of(f"{role} | {name}").name, set()).add(" ".join(words[:2]))
    return {step: frozenset(kinds) for step, kinds in found.items()}


def newest_times(records: Iterable[Mapping[str, Any]], pending: Mapping[str, frozenset[str]]) -> dict[str, StepTime]:
    """What each pending step took the last time, from the records of several hosts. Only applies that ended well count.

    pending: from `kinds_of`. A step that did the same counts, else one that did this and more: a step of the driver
    that only wrote its hold says nothing of an installation. A reboot is part of the driver. Weights count as a rate:
    only records with their bytes.
    """
    same: dict[str, StepTime] = {}
    more: dict[str, StepTime] = {}
    for record in sorted(records, key=lambda each: str(each["when"])):
        times = {time.step: time for time in map(StepTime.of_record, record.get("steps", ()))}
        if record["result"] != "changed":
            continue
        if (driver := times.get("driver")) and (reboot := times.pop(REBOOT, None)):
            times["driver"] = replace(driver, seconds=driver.seconds + reboot.seconds)
        done = kinds_of((role, name) for role, _, name in (text.partition(": ") for text in record["changes"]))
        for step, kinds in pending.items():
            if not (time := times.get(step)):
                continue
            if step == WEIGHTS:
                same |= {step: time} if time.bytes else {}
            elif kinds <= done.get(step, frozenset()):
                (same if kinds == done[step] else more)[step] = time
    return more | same


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
            if step.name in ("removal", "network", "power limit", "judgement"):  # seconds, or beside what takes longer
                continue
            return None
        known = past[step.name]
        seconds = known.seconds * weights_bytes / known.bytes if step.name == WEIGHTS else known.seconds
        began = max([0.0 if step.beside else turn, *(ends.get(name, 0.0) for name in all_needs(step))])
        ends[step.name] = began + seconds
        turn = turn if step.beside else ends[step.name]
        spans.append(Span(step.name, began, ends[step.name], step.beside))
    return Estimate(max(ends.values()), step_times(spans)) if ends else None
