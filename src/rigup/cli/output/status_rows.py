"""Rows of `rigup status`, one per service and host: plain values, also used by `--json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rigup.facts.engine_kernels import read_kernels
from rigup.facts.probe import Probe, ProbedGpu, UnitState
from rigup.plan import Plan
from rigup.preflight.driver import managed_driver
from rigup.run.drift import Drift, driver_differences
from rigup.run.kernel_status import counted_on, runs_without_ours, tuned_kernels, unplanned
from rigup.run.result import NO_ANSWER, HostResult

SYSTEMD_TIME = "%a %Y-%m-%d %H:%M:%S UTC"
STOPPED = "stopped"
WITHOUT = "without "
_TAKES_NO_PART = ("unreachable", "refused", "cancelled", "not begun")


def row(result: HostResult, plan: Plan, drift: tuple[Drift, ...]) -> dict[str, Any]:
    """The row of one service. Its `drift` names what differs from the plan, "none" if nothing does.

    drift: all drift found on the host.
    """
    name, probe = plan.service.name, result.probe
    known: dict[str, Any] = {"host": result.host, "service": name, "health": "unknown", "drift": "unknown"}
    if probe is None:
        return known | {"health": result.state}
    unit, release = probe.units.get(name), probe.releases.get(name)
    answer = next((a for a in result.answers if a.service == name), None)
    differing = driver_differences(probe.nvidia, managed_driver(plan, probe))
    own = [found.what for service in (name, "") for found in drift if found.service == service]
    return known | {
        "os": probe.os,
        "driver": ", ".join(differing) or None,
        "gpus": [asdict(gpu) for gpu in probe.gpus],
        **gpu_figures(probe, plan),
        "release": probe.current.get(name),
        "build": release.get("build") if release else None,
        "checkpoint": release.get("checkpoint") if release else None,
        "unit": unit.active if unit else "absent",
        "since": unit.since if unit else None,
        "up_seconds": up_seconds(unit.since, probe.clock) if unit and unit.active == "active" else None,
        "restarts": unit.restarts if unit else None,
        "health": result.worker_health.get(name) or ("answers" if answer else _unanswered(result, unit)),
        "stopped": probe.rests(name),
        "seconds": answer.seconds if answer else None,
        "resident": answer.model if answer and plan.members else None,
        "members": members(plan, answer.model if answer else ""),
        "drift": ", ".join(dict.fromkeys(own)) or ("unknown" if name in probe.damaged else "none"),
    }


def members(plan: Plan, resident: str) -> list[dict[str, Any]]:
    """The services of a swap group, and whether each is loaded; [] for a service alone."""
    return [
        {
            "service": one.service.name,
            "model": one.served_name,
            "checkpoint": one.checkpoint and one.checkpoint.model_dump(include={"repo", "quant", "revision"}),
            "loaded": one.served_name == resident,
        }
        for one in plan.members
    ]


def _unanswered(result: HostResult, unit: UnitState | None) -> str:
    """Why a service has not answered: it was not asked, or is stopped, or did not."""
    if result.state in _TAKES_NO_PART:
        return "not asked"
    return STOPPED if unit and unit.active == "inactive" else NO_ANSWER


def with_restarts(text: str, row: dict[str, Any]) -> str:
    """A text about a service with how often systemd has restarted it since its start: a crash loop may look healthy."""
    times = row.get("restarts") or 0
    return f"{text}, {times:,} restart{'' if times == 1 else 's'}" if times else text


def with_kernels(found: dict[str, Any], plan: Plan, logged: list[str] | None) -> dict[str, Any]:
    """Adds the kernels that a start logged. Those are drift that the plan counts on and the host lacks or did not take.

    logged: the lines of the start; None if they could not be read.
    """
    tuned, kernels = tuned_kernels(plan, logged), read_kernels(logged or ())
    lacking = [f"{WITHOUT}{what}" for what in kernels.left_out if counted_on(plan)]
    lacking += [f"{part} kernels {', '.join(taken)}" for part, taken in unplanned(plan, kernels.chosen)]
    if runs_without_ours(plan, tuned):
        lacking.append("moe config")
    drift = ", ".join(part for part in (found["drift"], *lacking) if part != "none") or "none"
    return found | {"moe_config": tuned, "kernels": {k: list(v) for k, v in kernels.chosen.items()}, "drift": drift}


def left_over_row(result: HostResult, drift: Drift) -> dict[str, Any]:
    """The row of a service that is on a host but in no plan."""
    unit = result.probe.units.get(drift.service) if result.probe else None
    state = unit.active if unit else "absent"
    known = {"host": result.host, "service": drift.service, "unit": state}
    return known | {"health": "not asked", "drift": drift.what}


def disabled_row(result: HostResult, service: str, drift: tuple[Drift, ...]) -> dict[str, Any]:
    """The row of a service that the inventory has with `enabled = False`. drift: all drift found on the host."""
    known: dict[str, Any] = {"host": result.host, "service": service, "health": "unknown", "drift": "unknown"}
    if (probe := result.probe) is None:
        return known | {"health": result.state}
    unit = probe.units.get(service)
    own = [found.what for found in drift if found.service == service]
    return known | {
        "unit": unit.active if unit else "absent",
        "release": probe.current.get(service),
        "health": "not asked" if own else STOPPED,
        "stopped": not own,
        "drift": ", ".join(own) or "none",
    }


def gpu_figures(probe: Probe, plan: Plan) -> dict[str, Any]:
    """Totals of a service's GPUs: used MiB, total MiB, highest temperature in °C; None if unknown."""
    gpus = _of_service(probe, plan)
    used = [gpu.memory_used_mib for gpu in gpus if gpu.memory_used_mib is not None]
    there = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
    warm = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    return {
        "gpu_memory_used_mib": sum(used) if used else None,
        "gpu_memory_mib": sum(there) if there else None,
        "gpu_temperature_c": max(warm) if warm else None,
    }


def gpu_memory_text(row: dict[str, Any]) -> str:
    """ "20.5 of 24.0 GiB" of a row; "" if unknown."""
    used, there = row.get("gpu_memory_used_mib"), row.get("gpu_memory_mib")
    return f"{(used or 0) / 1024:.1f} of {there / 1024:.1f} GiB" if there else ""


def _of_service(probe: Probe, plan: Plan) -> list[ProbedGpu]:
    """The GPUs of a service's release by UUID, or by the plan's indices if it has no UUIDs."""
    release = probe.releases.get(plan.service.name) or {}
    named = str((release.get("environment") or {}).get("CUDA_VISIBLE_DEVICES", "")).split(",")
    chosen = [gpu for gpu in probe.gpus if gpu.uuid in named]
    indices = {memory.gpu for memory in plan.memory}
    return chosen or [gpu for gpu in probe.gpus if gpu.index in indices]


def up_seconds(since: str, clock: int) -> int | None:
    """Seconds that a unit has been active by its host's clock; None if systemd does not report it."""
    try:
        began = datetime.strptime(since, SYSTEMD_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return max(0, clock - int(began.timestamp()))


def set_states(results: Iterable[HostResult], rows: Iterable[dict[str, Any]]) -> None:
    """Sets the state of every host without failures: in sync unless a service has drifted."""
    drifted = {found["host"] for found in rows if found["drift"] != "none"}
    for result in results:
        if result.state == "pending":
            result.state = "differs" if result.host in drifted else "unchanged"
