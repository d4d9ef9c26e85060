"""`rigup plan --json`, schema 1: a stable contract for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rigup.gateway.cache_aware import warnings_of
from rigup.gateway_settings import GatewayPlan
from rigup.plan import Plan
from rigup.planner.multinode.nodes import named
from rigup.project.inventory import HostEntry
from rigup.units import Frozen

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
    routes = [
        {
            "model": route.model,
            "backends": [backend.model_dump(exclude={"health_path", "wants_key"}) for backend in route.backends],
        }
        for route in plan.routes
    ]
    gateway = plan.gateway
    return {
        "host": plan.host,
        "group": plan.group,
        "kind": gateway.kind,
        "listen": gateway.listen,
        "port": gateway.port,
        "shared_address": gateway.shared_address.host if gateway.shared_address else None,
        "sharing": list(plan.sharing),
        "tls": gateway.tls is not None,
        "clients": {name: client.model_dump(exclude={"key_file"}) for name, client in gateway.clients.items()},
        "hold": gateway.hold,
        "routes": routes,
        "warnings": [warning.model_dump(exclude={"hint"}) for warning in warnings_of(plan)],
    }


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """One plan; undecided fields of a refused plan are null.

    nodes: the hosts of a multi-host service by rank, [] for one host. rank: this host's.
    """
    decided = _decided(plan)
    return {
        "host": plan.host,
        "group": plan.group,
        "verdict": plan.verdict,
        "rig": _rig(plan),
        "service": {"name": plan.service.name, "port": plan.service.port},
        **(decided if plan.verdict == "ok" else dict.fromkeys(decided)),
        "refusals": [finding.model_dump() for finding in plan.refusals],
        "alternatives": [alternative.model_dump() for alternative in plan.alternatives],
        "nodes": [node.host for node in plan.nodes],
        "rank": plan.rank,
    }


def _rig(plan: Plan) -> dict[str, Any]:
    gpus = [
        {"index": i, "name": g.name, "memory_mib": g.memory_mib, "compute_capability": g.compute_capability}
        for i, g in enumerate(plan.rig.gpus)
    ]
    memory = plan.rig.host_memory
    return {
        "gpus": gpus,
        "host_memory_gib": plan.rig.host_memory_gib,
        "host_memory": memory and memory.text,
    }


def _decided(plan: Plan) -> dict[str, Any]:
    shown, build = named(plan), plan.build
    return {
        "engine": build and {"name": build.engine, "version": build.version, "build": build.method},
        "checkpoint": plan.checkpoint and plan.checkpoint.model_dump(include={"repo", "quant", "bytes"}),
        "draft": plan.draft and plan.draft.model_dump(include={"repo", "quant", "bytes"}),
        "parallel": _dumped(plan.parallel),
        "context": plan.context,
        "kv_cache_type": plan.kv_cache_type,
        "kv_tokens": plan.kv_tokens,
        "memory": [gpu.model_dump() for gpu in plan.memory],
        "host_memory_mib": plan.host_memory_mib,
        "host_memory_parts": _dumped(plan.host_parts),
        "decode_tokens_per_second": _dumped(plan.decode_tokens_per_second),
        "command": list(shown.command),
        "environment": dict(shown.environment),
        "swap": plan.swap and plan.swap.model_dump() | {"others": list(plan.swap.others)},
        "moe_config": plan.moe_config and plan.moe_config.model_dump(include={"file", "status"}),
        "quality": plan.quality,
        "traded": list(plan.traded),
        "speculative": plan.speculative,
        "warnings": [warning.model_dump(exclude={"hint"}) for warning in plan.warnings],
    }


def _dumped(value: Frozen | None) -> dict[str, Any] | None:
    return None if value is None else value.model_dump()
