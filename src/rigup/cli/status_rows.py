"""What `rigup status` says of one service on one host: plain values, which are also its `--json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rigup.facts.probe import Gpu, Probe
from rigup.fleet.drift import Drift, driver_standing
from rigup.fleet.kernels import runs_without_ours
from rigup.fleet.result import NO_ANSWER, HostResult
from rigup.plan import Plan

SYSTEMD_TIME = "%a %Y-%m-%d %H:%M:%S UTC"
_TAKES_NO_PART = ("unreachable", "refused", "cancelled", "not begun")


def row(result: HostResult, plan: Plan, drift: tuple[Drift, ...]) -> dict[str, Any]:
    """One service. `drift` of the row names what is not as the plan has it, "none" where all of it is.

    drift: all that was found on the host.
    """
    name, probe = plan.service.name, result.probe
    known: dict[str, Any] = {"host": result.host, "service": name, "health": "unknown", "drift": "unknown"}
    if probe is None:
        return known | {"health": result.state}
    unit, release = probe.units.get(name), probe.releases.get(name)
    answer = next((a for a in result.answers if a.service == name), None)
    standing = driver_standing(probe.nvidia, plan.driver)
    own = [found.what for service in (name, "") for found in drift if found.service == service]
    return known | {
        "os": probe.os,
        "driver": ", ".join(standing) or None,
        "gpus": [asdict(gpu) for gpu in probe.gpus],
        **gpu_figures(probe, plan),
        "release": probe.current.get(name),
        "build": release["build"] if release else None,
        "checkpoint": release["checkpoint"] if release else None,
        "unit": unit.active if unit else "absent",
        "since": unit.since if unit else None,
        "up_seconds": up_seconds(unit.since, probe.clock) if unit and unit.active == "active" else None,
        "restarts": unit.restarts if unit else None,
        "health": result.standing.get(name) or ("answers" if answer else _unanswered(result)),
        "seconds": answer.seconds if answer else None,
        "drift": ", ".join(dict.fromkeys(own)) or "none",
    }


def _unanswered(result: HostResult) -> str:
    """Of a service that has not answered, whether it was asked at all."""
    return "not asked" if result.state in _TAKES_NO_PART else NO_ANSWER


def with_kernels(found: dict[str, Any], plan: Plan, said: str | None) -> dict[str, Any]:
    """A row with what the service's log says of its tuned kernels; given some and finding none is drift."""
    found = found | {"moe_config": said}
    if runs_without_ours(plan, said):
        found["drift"] = ", ".join(part for part in (found["drift"], "moe config") if part != "none")
    return found


def left_over_row(result: HostResult, drift: Drift) -> dict[str, Any]:
    """A service that is on a host and in no plan."""
    unit = result.probe.units.get(drift.service) if result.probe else None
    state = unit.active if unit else "absent"
    known = {"host": result.host, "service": drift.service, "unit": state}
    return known | {"health": "not asked", "drift": drift.what}


def gpu_figures(probe: Probe, plan: Plan) -> dict[str, Any]:
    """The GPUs of a service together: MiB in use, MiB in all, degrees Celsius of the hottest; None where none says."""
    gpus = _of_service(probe, plan)
    used = [gpu.memory_used_mib for gpu in gpus if gpu.memory_used_mib is not None]
    there = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
    warm = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    return {
        "gpu_memory_used_mib": sum(used) if used else None,
        "gpu_memory_mib": sum(there) if there else None,
        "gpu_temperature_c": max(warm) if warm else None,
    }


def _of_service(probe: Probe, plan: Plan) -> list[Gpu]:
    """The GPUs that a service's release was given; by the plan's indices where it was given none by UUID."""
    release = probe.releases.get(plan.service.name) or {}
    named = str((release.get("environment") or {}).get("CUDA_VISIBLE_DEVICES", "")).split(",")
    chosen = [gpu for gpu in probe.gpus if gpu.uuid in named]
    indices = {memory.gpu for memory in plan.memory}
    return chosen or [gpu for gpu in probe.gpus if gpu.index in indices]


def up_seconds(since: str, clock: int) -> int | None:
    """How long a unit has been active by its host's own clock; None where systemd does not say."""
    try:
        began = datetime.strptime(since, SYSTEMD_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return max(0, clock - int(began.timestamp()))


def settle(results: Iterable[HostResult], rows: Iterable[dict[str, Any]]) -> None:
    """Says of every host on which nothing failed whether it is in sync: none of its services has drifted."""
    drifted = {found["host"] for found in rows if found["drift"] != "none"}
    for result in results:
        if result.state == "pending":
            result.state = "differs" if result.host in drifted else "unchanged"
