"""From a fleet on disk to a plan for every service on every host. No host is asked, and pyinfra is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.errors import InputError
from rigup.fleet.inventory import HostEntry, Project
from rigup.fleet.sets import Set, hosts_per_service, sets_of, unfit
from rigup.lock import Lock, load_lock
from rigup.node import Node
from rigup.plan import Finding, Plan
from rigup.planner.reading import read_rig, read_services
from rigup.planner.together import refused_together, together
from rigup.render.plan_service import plan_across
from rigup.rig import Rig
from rigup.service import Service


def plan_project(project: Project, lock: Lock | None = None, catalogue: Catalogue | None = None) -> tuple[Plan, ...]:
    """One plan for each service of each host, in the inventory's order; none for a host that is to serve nothing.

    Hosts with equal data share the work.

    Of hosts that serve together, those that the project leaves out are planned, too, and not returned.
    lock, catalogue: in place of the project's own.
    """
    catalogue = load_catalogue(project.root) if catalogue is None else catalogue
    lock = load_lock(project.lock_path) if lock is None else lock
    wanted = {host.name for host in project.hosts}
    groups: dict[str, list[HostEntry]] = {}
    for host in project.everyone:
        groups.setdefault(host.group, []).append(host)
    made: dict[tuple[str, str, str], tuple[tuple[Plan, ...], ...]] = {}
    found: dict[str, tuple[Plan, ...]] = {}
    for members in sets_of(project.everyone):
        if wanted.isdisjoint(host.name for host in members):
            continue
        first = members[0]
        finding = unfit(members, groups[first.group])
        key = (first.group, repr((first.data["rig"], first.data.get("services"))), repr(finding))
        if key not in made:
            made[key] = _refused_set(members, finding, catalogue) if finding else plan_set(members, catalogue, lock)
        # A set that is left over is smaller than the one that was planned.
        for host, plans in zip(members, made[key], strict=False):
            found[host.name] = tuple(_renamed(plan, host, members) for plan in plans)
    return tuple(plan for host in project.hosts for plan in found[host.name])


def _renamed(plan: Plan, host: HostEntry, members: Set) -> Plan:
    """The same plan for another set of equal hosts."""
    nodes = tuple(Node(host=member.name) for member in members) if plan.nodes else ()
    return plan.model_copy(update={"host": host.name, "nodes": nodes})


def plan_set(members: Set, catalogue: Catalogue, lock: Lock) -> tuple[tuple[Plan, ...], ...]:
    """The plans of hosts that serve together, by host. Raises InputError naming the file and key that is wrong."""
    rig, services = _read(members[0], catalogue)
    names, group = [host.name for host in members], members[0].group
    if not services:
        return ((),) * len(members)
    by_service = [plan_across(names, group, rig, service, catalogue, lock) for service in services]
    by_host = [together(plans) for plans in zip(*by_service, strict=True)]
    return refused_together(tuple(by_host))


def plan_host(host: HostEntry, catalogue: Catalogue, lock: Lock) -> tuple[Plan, ...]:
    """The plans of a host that serves alone. Raises InputError as `plan_set`, and for one that does not."""
    if hosts_per_service(host) > 1:
        raise InputError(
            f"{host.data_path}: rig.hosts_per_service: {host.name} is one of several hosts of a service",
            "rigup apply takes them together",
        )
    return plan_set((host,), catalogue, lock)[0]


def _read(host: HostEntry, catalogue: Catalogue) -> tuple[Rig, tuple[Service, ...]]:
    rig = read_rig(host.data["rig"], host.data_path, catalogue)
    services: Any = host.data.get("services")
    if services is None:
        raise InputError(f"{host.data_path}: services: missing", 'write services = {"chat": {"model": "MiniMax-M2.5"}}')
    wanted = read_services(services, host.origins["services"], catalogue, rig)
    if host.data.get("monitoring") is not None:
        from rigup.planner.monitoring import read_monitoring

        read_monitoring(host.data["monitoring"], f"{host.origins['monitoring']}: monitoring", rig, wanted)
    return rig, wanted


def _refused_set(members: Sequence[HostEntry], finding: Finding, catalogue: Catalogue) -> tuple[tuple[Plan, ...], ...]:
    rig, services = _read(members[0], catalogue)
    refused = [
        Plan(host="", group=members[0].group, verdict="refused", rig=rig, service=service, refusals=(finding,))
        for service in services
    ]
    return (tuple(refused),) * hosts_per_service(members[0])
