"""The one call that the command line and the deploys make: decide, then put into words."""

from __future__ import annotations

from rigup.catalogue import Catalogue
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner import decide
from rigup.planner.moe_config import against_the_lock, moe_config
from rigup.render.command import command
from rigup.render.known_names import unknown_to_the_build
from rigup.render.moe_configs import moe_folder, variables
from rigup.rig import Rig
from rigup.service import Service


def plan_service(host: str, group: str, rig: Rig, service: Service, catalogue: Catalogue, lock: Lock) -> Plan:
    """What `host` will run for `service`, with its command; or a refusal with every reason and what would fit."""
    decision = decide(host, group, rig, service, catalogue, lock)
    if decision.candidate is None or decision.plan.checkpoint is None:
        return decision.plan
    rendered = command(decision.candidate, decision.plan.checkpoint)
    if unknown := unknown_to_the_build(decision.candidate, rendered):
        return Plan(host=host, group=group, verdict="refused", rig=rig, service=service, refusals=unknown)
    assert decision.plan.build is not None
    folder = moe_folder(decision.candidate, decision.plan.build)
    # What the user says of a variable counts.
    environment = {**variables(decision.plan.build.engine, folder), **rendered.environment}
    return decision.plan.model_copy(
        update={
            "command": rendered.words,
            "environment": dict(sorted(environment.items())),
            "served_name": rendered.served_name,
            "start_timeout_s": rendered.start_timeout_s,
            "moe_config": against_the_lock(moe_config(decision.candidate), lock),
            "moe_folder": folder,
        }
    )
