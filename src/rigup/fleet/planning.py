"""From a fleet on disk to a plan for every service on every host. No host is asked, and pyinfra is not imported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rigup.catalogue import Catalogue, load_catalogue
from rigup.errors import InputError
from rigup.fleet.inventory import HostEntry, Project
from rigup.lock import Lock, load_lock
from rigup.plan import Plan
from rigup.planner.reading import read_rig, read_services
from rigup.planner.together import together
from rigup.render import plan_service


def plan_project(project: Project, lock: Lock | None = None) -> tuple[Plan, ...]:
    """One plan for each service of each host, in the inventory's order. Hosts with equal data share the work.

    lock: in place of the project's own.
    """
    catalogue = load_catalogue(project.root)
    lock = load_lock(project.lock_path) if lock is None else lock
    made: dict[tuple[str, str], tuple[Plan, ...]] = {}
    plans: list[Plan] = []
    for host in project.hosts:
        key = (host.group, repr([host.data.get(part) for part in ("rig", "services", "monitoring")]))
        if key not in made:
            made[key] = plan_host(host, catalogue, lock)
        plans += [plan.model_copy(update={"host": host.name}) for plan in made[key]]
    return tuple(plans)


def plan_host(host: HostEntry, catalogue: Catalogue, lock: Lock) -> tuple[Plan, ...]:
    """The plans of one host's services. Raises InputError naming the file and key that cannot be used."""
    rig = read_rig(host.data["rig"], host.data_path, catalogue)
    services: Any = host.data.get("services")
    if services is None:
        raise InputError(f"{host.data_path}: services: missing", 'write services = {"chat": {"model": "MiniMax-M2.5"}}')
    wanted = read_services(services, host.origins["services"], catalogue, rig)
    if host.data.get("monitoring") is not None:
        from rigup.planner.monitoring import read_monitoring

        read_monitoring(host.data["monitoring"], f"{host.origins['monitoring']}: monitoring", rig, wanted)
    return together(tuple(plan_service(host.name, host.group, rig, service, catalogue, lock) for service in wanted))


def plans_by_host(plans: Iterable[Plan]) -> dict[str, tuple[Plan, ...]]:
    """Groups plans by host name, in order."""
    grouped: dict[str, tuple[Plan, ...]] = {}
    for plan in plans:
        grouped[plan.host] = (*grouped.get(plan.host, ()), plan)
    return grouped
