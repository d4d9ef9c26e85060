"""Asks the planner about services that span hosts: raw values in, a plan for each host out."""

from __future__ import annotations

from typing import Any

from rigup.commands.rendered import plan_of
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.inputs.locked import planning_request
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import decide_all
from tests.unit.planner.asking import FILE, catalogue


def planned(gpus: object, hosts: int, service: dict[str, Any], **rig: Any) -> tuple[Plan, ...]:
    """The plans of one service by rank, on hosts h0, h1 and so on."""
    read = read_rig({"gpus": gpus, "hosts_per_service": hosts, **rig}, FILE, catalogue())
    (wanted,) = read_services({"chat": service}, FILE, read)
    names = [f"h{number}" for number in range(hosts)]
    (outcome,) = decide_all([planning_request(read, wanted, catalogue(), Lock())])
    return tuple(plan_of(outcome, "group", names, rank) for rank in range(hosts))


def refusals(gpus: object, hosts: int, service: dict[str, Any], **rig: Any) -> list[tuple[str, str, str]]:
    """Rule, message and hint of each refusal; fails if a host is not refused, or for another reason than the rest."""
    plans = planned(gpus, hosts, service, **rig)
    assert {plan.verdict for plan in plans} == {"refused"}
    assert len({plan.refusals for plan in plans}) == 1
    assert all(finding.source for finding in plans[0].refusals)
    return [(finding.rule, finding.message, finding.hint) for finding in plans[0].refusals]


def option(plan: Plan, name: str) -> str:
    """The word that follows an option."""
    return plan.command[plan.command.index(name) + 1]
