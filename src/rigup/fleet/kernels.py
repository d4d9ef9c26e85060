"""Which tuned kernels the services of a fleet took, by their own logs: hosts are asked side by side."""

from __future__ import annotations

from typing import Any

import gevent

from rigup.errors import HostFailed
from rigup.fleet.runner import Run
from rigup.operations import remote
from rigup.operations.moe_configs import DEFAULT, kernels_in_use
from rigup.plan import Plan


def kernels_of(run: Run) -> dict[tuple[str, str], str]:
    """By host and service; those whose kernels no config tunes, and those that could not be asked, are left out."""
    asked = {
        (host.name, plan.service.name): run.state.pool.spawn(_asked, host, plan)
        for host in run.state.inventory
        for plan in run.plans[host.name]
        if host.connected and plan.moe_config is not None
    }
    gevent.joinall(list(asked.values()))
    return {name: greenlet.value for name, greenlet in asked.items() if greenlet.value}


def runs_without_ours(plan: Plan, said: str | None) -> bool:
    """Whether a service was given tuned kernels and says that it found none."""
    return plan.moe_folder is not None and said is not None and DEFAULT in said


def _asked(host: Any, plan: Plan) -> str | None:
    try:
        return kernels_in_use(host, plan)
    except (HostFailed, *remote.LOST):
        return None
