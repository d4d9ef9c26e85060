"""What `rigup status` says of one service on one host: plain values, which are also its `--json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rigup.facts.probe import Nvidia
from rigup.fleet.result import HostResult
from rigup.operations.builds import name_of
from rigup.plan import DriverPlan, Plan


def row(result: HostResult, plan: Plan) -> dict[str, Any]:
    """One service. `drift` names what is not as the plan has it, "none" where all of it is."""
    from roles.service import release_of

    name, probe = plan.service.name, result.probe
    known: dict[str, Any] = {"host": result.host, "service": name, "health": "unknown", "drift": "unknown"}
    if probe is None:
        return known | {"health": result.state}
    unit, release = probe.units.get(name), probe.releases.get(name)
    answer = next((a for a in result.answers if a.service == name), None)
    assert plan.build is not None
    wanted = release_of(plan, name_of(plan.build, probe.architecture, probe.os)).manifest
    standing = driver_standing(probe.nvidia, plan.driver)
    drift = (
        *_release_drift(release, wanted),
        *(["unit overrides"] if unit and unit.overrides else []),
        *(["driver"] if len(standing) > 1 else []),
    )
    return known | {
        "os": probe.os,
        "driver": ", ".join(standing) or None,
        "gpus": [asdict(gpu) for gpu in probe.gpus],
        "release": probe.current.get(name),
        "build": release["build"] if release else None,
        "checkpoint": release["checkpoint"] if release else None,
        "unit": unit.active if unit else "absent",
        "since": unit.since if unit else None,
        "restarts": unit.restarts if unit else None,
        "health": "answers" if answer else "no answer",
        "seconds": answer.seconds if answer else None,
        "drift": ", ".join(drift) or "none",
    }


def settle(results: Iterable[HostResult], rows: Iterable[dict[str, Any]]) -> None:
    """Says of every host on which nothing failed whether it is in sync: none of its services has drifted."""
    drifted = {found["host"] for found in rows if found["drift"] != "none"}
    for result in results:
        if result.state == "pending":
            result.state = "differs" if result.host in drifted else "unchanged"


def driver_standing(nvidia: Nvidia, planned: DriverPlan | None) -> tuple[str, ...]:
    """The driver that the kernel runs, then what is at odds with it: another one on disk, another one in the lock.

    planned: None where rigup leaves the driver alone. () where there is no driver, and none is planned.
    """
    if not nvidia.loaded and planned is None:
        return ()
    on_disk = [f"{nvidia.installed} installed"] if nvidia.mismatched else []
    in_lock = [f"lock {planned.version}"] if planned and nvidia.loaded != planned.version else []
    return (nvidia.loaded or "none", *on_disk, *in_lock)


def _release_drift(release: dict[str, Any] | None, wanted: dict[str, Any]) -> list[str]:
    if release is None:
        return ["not applied"]
    return [key for key in wanted if release.get(key) != wanted[key]]
