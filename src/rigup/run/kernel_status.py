"""Which kernels the services of a fleet use, from the logs of their starts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rigup.catalogue.kernels import Kernels, was_asked
from rigup.facts import engine_kernels, engine_memory
from rigup.operations.service import moe_configs
from rigup.operations.service.start_log import lines_of_start
from rigup.plan import Plan
from rigup.run.context import RunContext, ask_quietly

_WORDS = "|".join((engine_memory.WORDS, engine_kernels.WORDS, moe_configs.WORDS))


def start_logs(run: RunContext) -> dict[tuple[str, str], list[str]]:
    """What each service with GPUs logged of its start, by host and service: all lines that a status is told from.

    Asks all hosts concurrently. Services whose log cannot be read are left out.
    """
    questions = {
        (host.name, plan.service.name): partial(lines_of_start, host, plan.service.name, _WORDS)
        for host in run.state.inventory
        for plan in run.plans[host.name]
        if host.connected and plan.memory
    }
    return ask_quietly(run.state, questions)


def tuned_kernels(plan: Plan, lines: list[str] | None) -> str | None:
    """The tuned kernels in use, see `moe_configs.judge`; None without a log or kernels that can be tuned."""
    return None if lines is None or plan.moe_config is None else moe_configs.judge(lines, plan.moe_folder)


def runs_without_ours(plan: Plan, kernels: str | None) -> bool:
    """Whether a service has tuned kernels and its log says that it found none."""
    return plan.moe_folder is not None and kernels is not None and moe_configs.DEFAULT in kernels


def unplanned(plan: Plan, chosen: Kernels) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The kernels that a start took, by part, where the plan names others and none of these.

    Nothing for a release that was not asked: it may take others by itself.
    """
    if not plan.kernels or plan.build is None or not was_asked(plan.build.engine, plan.build.version):
        return
    for part, planned in plan.kernels.items():
        taken = chosen.get(part, ())
        if taken and not set(taken) & set(planned):
            yield part, taken


def counted_on(plan: Plan) -> bool:
    """Whether a plan counts on all kernels that its engine may choose: it brings what they need to the host.

    Environments for CUDA 12 have no compiler, and leave out what needs one.
    """
    build = plan.build
    return build is not None and (build.method != "wheel" or build.own_compiler is not None)
