"""Finds which tuned kernels the services of a fleet use, from their logs."""

from __future__ import annotations

import gevent

from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.service.moe_configs import DEFAULT, kernels_in_use
from rigup.plan import Plan
from rigup.run.context import RunContext


def kernels_of(run: RunContext) -> dict[tuple[str, str], str]:
    """The kernels by host and service, without services that have no tunable kernels or whose log cannot be read."""
    asked = {
        (host.name, plan.service.name): run.state.pool.spawn(_asked, host, plan)
        for host in run.state.inventory
        for plan in run.plans[host.name]
        if host.connected and plan.moe_config is not None
    }
    gevent.joinall(list(asked.values()))
    return {name: greenlet.value for name, greenlet in asked.items() if greenlet.value}


def runs_without_ours(plan: Plan, kernels: str | None) -> bool:
    """Whether a service has tuned kernels and its log says that it found none."""
    return plan.moe_folder is not None and kernels is not None and DEFAULT in kernels


def _asked(host: Host, plan: Plan) -> str | None:
    try:
        return kernels_in_use(host, plan)
    except (HostFailed, *remote.CONNECTION_ERRORS):
        return None
