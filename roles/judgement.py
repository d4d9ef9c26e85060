"""The question to an engine, once it is on the host, whether it takes the plan."""

from __future__ import annotations

from functools import partial

from pyinfra.api import deploy

from rigup import layout
from rigup.operations.judgement import can_judge, judged, step_name
from rigup.operations.weights.checkpoint import FileSource
from rigup.plan import BoundPlan
from rigup.preflight.checks import free_for
from rigup.settings import HostSettings
from rigup.systemd.release import release_of


@deploy("judgement")
def judgement(plan: BoundPlan, build_name: str, plans: tuple[BoundPlan, ...], settings: HostSettings) -> None:
    """Have the engine judge the plan before its release is changed, if it has a judge. plans: of the whole host."""
    if not can_judge(plan) or plan.checkpoint is None:
        return
    hub, token = settings.source_of(plan.checkpoint.location)
    judged(
        name=step_name(plan),
        plan=plan,
        build_name=build_name,
        wanted=release_of(plan, build_name),
        free_mib=partial(free_for, plan.offline, plans, settings.remove, settings.disabled),
        source=FileSource(hub, layout.HUB_TOKEN if token else None, settings.packages.wheelhouse),
    )
