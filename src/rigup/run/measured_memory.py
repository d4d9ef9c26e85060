"""The memory that each GPU of a service really uses, next to the plan: for `status`, and recorded after a start.

`measured_mib` is NVML's used plus reserved memory: the planner's overhead includes the driver's reserve, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from rigup.errors import RigupError
from rigup.facts.engine_memory import WORDS, Parts, read_log
from rigup.facts.probe import Probe, ProbedGpu, parse
from rigup.facts.probe_script import script
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.gpu_binding import VISIBLE
from rigup.operations.service.start_log import lines_of_start
from rigup.plan import Parallel, Plan
from rigup.systemd.release import GPUS_KEY

_PROBE_SECONDS = 120
_KEPT_PARTS = {"graphs_counted"}


def rows(plan: Plan, probe: Probe, lines: Iterable[str]) -> list[dict[str, Any]]:
    """A row for each GPU of a plan: planned and used memory, and the parts that the log reports.

    `measured_mib` is None if NVML does not report it.
    """
    cards = _cards(plan, probe)
    parts = _log(plan, lines)
    found = []
    for planned, card, logged in zip(plan.memory, cards, parts, strict=True):
        row: dict[str, Any] = {
            "gpu": planned.gpu,
            "planned_mib": planned.weights_mib + planned.kv_cache_mib + planned.overhead_mib,
            "measured_mib": _in_use(card),
            "capacity_mib": planned.capacity_mib,
        }
        if details := _reported(logged):
            row["parts"] = details
        found.append(row)
    return found


def _log(plan: Plan, lines: Iterable[str]) -> tuple[Parts, ...]:
    """The memory parts in a host's log about its own GPUs; each host of a multi-host service has as many."""
    return read_log(lines, plan.parallel or Parallel(), len(plan.memory), plan.rank * len(plan.memory))


def _in_use(card: ProbedGpu | None) -> int | None:
    if card is None or card.memory_used_mib is None:
        return None
    return card.memory_used_mib + (card.memory_reserved_mib or 0)


def _reported(parts: Parts) -> dict[str, Any]:
    """The parts in the log, in whole MiB. Engines compute some as differences of free memory, which may be negative."""
    found = {key: value for key, value in asdict(parts).items() if value is not None and key not in _KEPT_PARTS}
    return {key: value if key == "kv_tokens" else max(0, round(value)) for key, value in found.items()}


def _cards(plan: Plan, probe: Probe) -> list[ProbedGpu | None]:
    """The card of each GPU of a plan: by the UUIDs in its release, else by the plan's indices."""
    release = probe.releases.get(plan.service.name) or {}
    by_uuid = {gpu.uuid: gpu for gpu in probe.gpus if gpu.uuid}
    named = {int(index): str(uuid) for index, uuid in release.get(GPUS_KEY) or ()}
    visible = str((release.get("environment") or {}).get(VISIBLE, "")).split(",")
    if not named and len(visible) == len(plan.memory) and all(uuid in by_uuid for uuid in visible):
        named = {memory.gpu: uuid for memory, uuid in zip(plan.memory, visible, strict=True)}
    by_index = {gpu.index: gpu for gpu in probe.gpus}
    return [by_uuid.get(named[m.gpu]) if m.gpu in named else by_index.get(m.gpu) for m in plan.memory]


def totals(rows: Iterable[dict[str, Any]]) -> tuple[int, int] | None:
    """MiB measured and planned over all GPUs; None if one of them was not measured."""
    known = [(row["measured_mib"], row["planned_mib"]) for row in rows]
    if not known or any(measured is None for measured, _ in known):
        return None
    return sum(measured for measured, _ in known), sum(planned for _, planned in known)


def percent_off(measured: int, planned: int) -> str:
    """By how much the measurement differs from the plan: "+3 %"."""
    return f"{100 * (measured - planned) / max(planned, 1):+.0f} %"


def in_words(rows: Iterable[dict[str, Any]]) -> str:
    """All GPUs together: "21.4 of 22.0 GiB planned (-3 %)", or "not measured"."""
    sums = totals(rows)
    return (
        f"{sums[0] / 1024:.1f} of {sums[1] / 1024:.1f} GiB planned ({percent_off(*sums)})" if sums else "not measured"
    )


def after_start(host: Host, plan: Plan) -> dict[str, Any] | None:
    """The memory measurement of a service that this apply has started; None if nothing could be measured.

    Sends two commands to the host. A failure here does not roll the service back.
    """
    lines: list[str] = []
    try:
        output = remote.run(host, "sh", "-s", stdin=script(), timeout=_PROBE_SECONDS)
        probe = parse(output.stdout.splitlines())
        with suppress(RigupError, *remote.CONNECTION_ERRORS):
            lines = lines_of_start(host, plan.service.name, WORDS)
        found = kept(plan, probe, lines)
    except (RigupError, *remote.CONNECTION_ERRORS, ValueError, KeyError):
        return None
    if found:
        report(Progress(host.name, "log", text=f"{plan.service.name}: GPU memory: {in_words(found['gpus'])}"))
    return found


def kept(plan: Plan, probe: Probe, lines: list[str]) -> dict[str, Any] | None:
    """The measurement of one start, with the plan's values for a calibration; None if NVML reports nothing."""
    if plan.build is None or plan.checkpoint is None:
        return None
    found = rows(plan, probe, lines)
    if totals(found) is None:
        return None
    parallel, counted = plan.parallel or Parallel(), _log(plan, lines)
    gpus = []
    for row, planned, parts in zip(found, plan.memory, counted, strict=True):
        name = plan.rig.gpus[planned.gpu].name
        gpus.append(row | {"name": name, "graphs_counted": parts.graphs_counted} | planned.model_dump(exclude={"gpu"}))
    return {
        "engine": plan.build.engine,
        "version": plan.build.version,
        "checkpoint": f"{plan.checkpoint.repo} {plan.checkpoint.quant}",
        "parallel": parallel.model_dump(),
        "kv_tokens": plan.kv_tokens,
        "fraction": _fraction(plan),
        "runtime_mib": plan.runtime_mib,
        "gpus": gpus,
    }


def _fraction(plan: Plan) -> float | None:
    """vLLM's share of each GPU, if its KV cache takes the rest of that share; otherwise None."""
    words = dict(pairwise(plan.command))
    if "--kv-cache-memory-bytes" in words or "--kv-cache-memory" in words:
        return None
    try:
        return float(words["--gpu-memory-utilization"])
    except (KeyError, ValueError):
        return None
