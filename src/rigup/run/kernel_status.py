"""Finds which tuned kernels the services of a fleet use, from their logs."""

from __future__ import annotations

from functools import partial

from rigup.operations.service.moe_configs import DEFAULT, kernels_in_use
from rigup.plan import Plan
from rigup.run.context import RunContext, ask_quietly


def kernels_of(run: RunContext) -> dict[tuple[str, str], str]:
    """The kernels by host and service, without services that have no tunable kernels or whose log cannot be read."""
    questions = {
        (host.name, plan.service.name): partial(kernels_in_use, host, plan)
        for host in run.state.inventory
        for plan in run.plans[host.name]
        if host.connected and plan.moe_config is not None
    }
    return ask_quietly(run.state, questions)


def runs_without_ours(plan: Plan, kernels: str | None) -> bool:
    """Whether a service has tuned kernels and its log says that it found none."""
    return plan.moe_folder is not None and kernels is not None and DEFAULT in kernels
