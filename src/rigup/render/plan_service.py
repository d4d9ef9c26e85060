"""The one call that the command line and the deploys make: decide, then put into words."""

from __future__ import annotations

from collections.abc import Sequence

from rigup.catalogue.catalogue import Catalogue
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.assembly import part_of
from rigup.planner.candidate import Candidate
from rigup.planner.decide import decide
from rigup.planner.moe_config import against_the_lock, moe_config
from rigup.render.command import command
from rigup.render.known_names import unknown_to_the_build
from rigup.render.moe_configs import moe_folder, variables
from rigup.rig import Rig
from rigup.service import Service


def plan_service(host: str, group: str, rig: Rig, service: Service, catalogue: Catalogue, lock: Lock) -> Plan:
    """What `host` will run for `service`, with its command; or a refusal with every reason and what would fit."""
    return plan_across((host,), group, rig, service, catalogue, lock)[0]


def plan_across(
    hosts: Sequence[str], group: str, rig: Rig, service: Service, catalogue: Catalogue, lock: Lock
) -> tuple[Plan, ...]:
    """The plans of one service, decided once, for all the hosts that it spans: by rank, the head first.

    Raises ValueError where these are not as many as the rig says.
    """
    if len(hosts) != rig.hosts_per_service:
        raise ValueError(f"{len(hosts)} hosts, and a service of this rig spans {rig.hosts_per_service}")
    decision = decide(hosts[0], group, rig, service, catalogue, lock)
    if decision.candidate is None:
        return tuple(decision.plan.model_copy(update={"host": host}) for host in hosts)
    parts = [_in_words(decision.plan, decision.candidate, hosts, rank, lock) for rank in range(len(hosts))]
    refusals = tuple(dict.fromkeys(finding for part in parts for finding in part.refusals))
    if not refusals:
        return tuple(parts)
    refused = Plan(host="", group=group, verdict="refused", rig=rig, service=service, refusals=refusals)
    return tuple(refused.model_copy(update={"host": host}) for host in hosts)


def _in_words(plan: Plan, candidate: Candidate, hosts: Sequence[str], rank: int, lock: Lock) -> Plan:
    """The plan of one host with its command, or with what speaks against sending it."""
    assert plan.checkpoint is not None and plan.build is not None
    rendered = command(candidate, plan.checkpoint, rank)
    if unknown := unknown_to_the_build(candidate, rendered):
        return plan.model_copy(update={"refusals": unknown})
    folder = moe_folder(candidate, plan.build)
    # What the user says of a variable counts.
    environment = {**variables(plan.build.engine, folder), **rendered.environment}
    return part_of(plan, candidate, hosts, rank).model_copy(
        update={
            "command": rendered.words,
            "environment": dict(sorted(environment.items())),
            "served_name": rendered.served_name,
            "start_timeout_s": rendered.start_timeout_s,
            "moe_config": against_the_lock(moe_config(candidate), lock),
            "moe_folder": folder,
        }
    )
