"""`rigup plan --json`, schema 1: a stable contract for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rigup.cli.output.json_documents.plans import DECIDED, GatewayOffer, PlanOfService
from rigup.gateway.cache_aware import warnings_of
from rigup.gateway_settings import GatewayPlan
from rigup.plan import Plan
from rigup.planner.multinode.nodes import named
from rigup.project.inventory import HostEntry

SCHEMA = 1


def as_json(
    plans: Iterable[Plan],
    idle: Iterable[HostEntry],
    gateways: Iterable[GatewayPlan] = (),
    disabled: Iterable[tuple[str, str]] = (),
) -> dict[str, Any]:
    """All plans, one entry per service and host, the hosts without services, what gateways offer, what stays stopped.

    disabled: hosts with services.
    """
    return {
        "schema": SCHEMA,
        "hosts": [plan_as_json(plan) for plan in plans],
        "idle": [{"host": entry.name, "group": entry.group} for entry in idle],
        "gateways": [gateway_as_json(gateway) for gateway in gateways],
        "disabled": [{"host": host, "service": service} for host, service in disabled],
    }


def gateway_as_json(plan: GatewayPlan) -> dict[str, Any]:
    """What one gateway offers. Paths of key files are left out."""
    gateway = plan.gateway
    made = {
        "shared_address": gateway.shared_address.host if gateway.shared_address else None,
        "tls": gateway.tls is not None,
        "warnings": warnings_of(plan),
    }
    return GatewayOffer.of(dict(gateway) | dict(plan) | made)


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """One plan; undecided fields of a refused plan are null.

    nodes: the hosts of a multi-host service by rank, [] for one host. rank: this host's.
    """
    rig, memory = plan.rig, plan.rig.host_memory
    gpus = [dict(gpu) | {"index": index} for index, gpu in enumerate(rig.gpus)]
    made = {
        "rig": dict(rig) | {"gpus": gpus, "host_memory": memory and memory.text},
        **named(plan)._asdict(),
        "nodes": [node.host for node in plan.nodes],
    }
    document = PlanOfService.of(dict(plan) | made)
    return document if plan.verdict == "ok" else document | dict.fromkeys(DECIDED)
