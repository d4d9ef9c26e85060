"""From a fleet on disk to a plan for every service on every host. No host is asked, and pyinfra is not imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.commands.rendered import Rendered, plan_of, rendered
from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.errors import InputError, Refused, RigupError
from rigup.lock import Lock, load_lock
from rigup.plan import Finding, Plan, plans_by_host
from rigup.planner.decide import decide
from rigup.planner.decision import Decision, Refusal
from rigup.planner.driver import branch_warnings
from rigup.planner.enumeration import PlanningRequest
from rigup.planner.inputs.locked import planning_request
from rigup.planner.inputs.rig_and_services import keeps_driver, read_rig, read_services
from rigup.planner.multinode.conflicts import Occupied
from rigup.project.inventory import HostEntry, Project
from rigup.project.node_groups import check_whole_groups, group_finding, hosts_by_group, hosts_per_service, node_groups
from rigup.project.pinned import require_pinned
from rigup.rig import Rig
from rigup.service import Preference, Service

# The engine builds that the toolkit has a role for, by (engine, method).
INSTALLABLE = {
    ("llama.cpp", "source"),
    ("vllm", "wheel"),
    ("sglang", "wheel"),
    *((engine, "image") for engine in ("llama.cpp", "vllm", "sglang")),
}


def plans_to_apply(project: Project, service: str | None = None) -> dict[str, tuple[Plan, ...]]:
    """The plans of every host of a project, each of which can be carried out; () for a host that is to serve nothing.

    service: the only one whose plans must be accepted; those of others are left out where they are refused.
    Raises Refused where a plan is, InputError where something is not pinned or a service has not all of its hosts.
    """
    check_whole_groups(project)
    lock = load_lock(project.lock_path)
    plans = plan_project(project, lock)
    refuse(plan for plan in plans if service in (None, plan.service.name))
    plans = tuple(plan for plan in plans if plan.verdict == "ok")
    require_pinned(plans, lock)
    check_installable(plans)
    return {host.name: () for host in project.hosts} | {
        host: as_groups(each) for host, each in plans_by_host(plans).items()
    }


def refuse(plans: Iterable[Plan]) -> None:
    """Raises Refused with every reason, where some of the plans are refused."""
    findings = [(plan, finding) for plan in plans for finding in plan.refusals]
    if findings:
        lines = [f"{p.host}: {p.service.name}: {f.message} [{f.rule}]" for p, f in findings]
        hints = dict.fromkeys(f.hint for _, f in findings if f.hint)
        raise Refused("\n       ".join(lines), "; ".join([*hints, "see what fits instead: rigup plan"]))


def check_installable(plans: Iterable[Plan]) -> None:
    """Raises RigupError for what can be planned but not installed: there is no role for the engine's build."""
    for plan in plans:
        assert plan.build is not None
        kind = (plan.build.engine, plan.build.method)
        if kind not in INSTALLABLE:
            known = ", ".join(f"{engine} from {method}" for engine, method in sorted(INSTALLABLE))
            raise RigupError(
                f"{plan.host}: {plan.service.name}: {kind[0]} as a {kind[1]} build can be planned but not installed "
                "yet",
                f"choose from: {known}",
            )


def plan_project(
    project: Project,
    lock: Lock | None = None,
    catalogue: Catalogue | None = None,
    prefer: Preference | None = None,
    today: date | None = None,
) -> tuple[Plan, ...]:
    """One plan for each service of each host, in the inventory's order; none for a host that is to serve nothing.

    Hosts with equal data share the work.

    Of hosts that serve together, those that the project leaves out are planned, too, and not returned.
    lock, catalogue: in place of the project's own. prefer: in place of each service's own. today: if given, plans warn
    of a driver branch whose support ends.
    """
    catalogue = _catalogue(project) if catalogue is None else catalogue
    lock = load_lock(project.lock_path) if lock is None else lock
    wanted = {host.name for host in project.hosts}
    groups = hosts_by_group(project.everyone)
    made: dict[tuple[str, str, str], tuple[Rendered | Refusal, ...]] = {}
    found: dict[str, tuple[Plan, ...]] = {}
    for members in node_groups(project.everyone):
        names = [host.name for host in members]
        if wanted.isdisjoint(names):
            continue
        first = members[0]
        finding = group_finding(members, groups[first.group])
        key = (first.group, repr([first.data.get(key) for key in ("rig", "services", "driver")]), repr(finding))
        if key not in made:
            requests = _requests(first, catalogue, lock)
            if prefer is not None:
                requests = [
                    replace(each, service=each.service.model_copy(update={"prefer": prefer})) for each in requests
                ]
            made[key] = (
                tuple(Refusal(each.rig, each.service, (finding,)) for each in requests)
                if finding
                else decide_all(requests)
            )
        for rank, name in enumerate(names):
            found[name] = taking_turns([plan_of(outcome, first.group, names, rank) for outcome in made[key]])
    return tuple(_dated(plan, today) for host in project.hosts for plan in found[host.name])


def _dated(plan: Plan, today: date | None) -> Plan:
    """The plan with warnings that depend on the date."""
    found = tuple(branch_warnings(plan.rig, plan.driver, today)) if today else ()
    return plan.model_copy(update={"warnings": (*plan.warnings, *found)}) if found else plan


def _catalogue(project: Project) -> Catalogue:
    """The catalogue as far as the project needs it, or the whole where a service names no model of it."""
    named = {name.lower() for host in project.everyone for name in _model_names(host.data.get("services"))}
    found = load_catalogue(project.root, {name.rpartition("/")[2] for name in named})
    known = {name.lower() for name in (*found.models_by_name, *(entry.repo for entry in found.checkpoints))}
    return found if named <= known else load_catalogue(project.root)


def _model_names(services: Any) -> Iterator[str]:
    """The models that services name, at any depth; a checkpoint's name for one without a model."""
    for key, value in services.items() if isinstance(services, dict) else ():
        if key in ("model", "checkpoint") and value is not None:
            yield str(value)
        yield from _model_names(value)


def plan_host(host: HostEntry, catalogue: Catalogue, lock: Lock) -> tuple[Plan, ...]:
    """The plans of a host that serves alone. Raises InputError for one that does not, and naming what is wrong."""
    if hosts_per_service(host) > 1:
        raise InputError(
            f"{host.data_path}: rig.hosts_per_service: {host.name} serves together with other hosts",
            "plan them together with rigup plan or rigup apply",
        )
    outcomes = decide_all(_requests(host, catalogue, lock))
    return as_groups(taking_turns([plan_of(outcome, host.group, (host.name,)) for outcome in outcomes]))


def plan_service(
    host: str, group: str, rig: Rig, service: Service, catalogue: Catalogue, lock: Lock, advise: bool = True
) -> Plan:
    """What a host will run for one service, where it has no other. Raises InputError as `resolve`.

    advise: as for `decide`.
    """
    (outcome,) = decide_all([planning_request(rig, service, catalogue, lock)], advise)
    return plan_of(outcome, group, (host,))


def decide_all(requests: Sequence[PlanningRequest], advise: bool = True) -> tuple[Rendered | Refusal, ...]:
    """The outcome for each service of one rig; refused are those, too, that ask for what an earlier one has.

    advise: as for `decide`.
    """
    found: list[Rendered | Refusal] = []
    occupied = Occupied()
    for request in requests:
        decision = decide(request, advise)
        outcome = rendered(decision) if isinstance(decision, Decision) else decision
        if isinstance(outcome, Rendered):
            if findings := occupied.conflicts(outcome.decision):
                outcome = Refusal(request.rig, request.service, findings)
            else:
                occupied.add(outcome.decision)
        found.append(outcome)
    return tuple(_with_all_or_none(found))


def _with_all_or_none(outcomes: Sequence[Rendered | Refusal]) -> Iterator[Rendered | Refusal]:
    """The outcomes; of services that take turns, all are refused if one is."""
    refused = [each.service.name for each in outcomes if isinstance(each, Refusal) and each.service.swap]
    for outcome in outcomes:
        if refused and isinstance(outcome, Rendered) and outcome.decision.candidate.service.swap:
            candidate = outcome.decision.candidate
            finding = Finding(
                rule="swap-group",
                message=f"takes turns with {refused[0]}, which is refused",
                hint="fix that one first, or leave swap out",
                source="docs/swap.md",
            )
            yield Refusal(candidate.rig, candidate.service, (finding,))
        else:
            yield outcome


def _requests(host: HostEntry, catalogue: Catalogue, lock: Lock) -> list[PlanningRequest]:
    """What is to be decided for a host, by service. Raises InputError naming the file and key that is wrong."""
    rig = read_rig(host.data["rig"], host.data_path, catalogue)
    if keeps_driver(host.data, host.origins.get("driver", host.data_path)):
        rig = rig.model_copy(update={"keep_driver": True})
    said: Any = host.data.get("services")
    if said is None:
        raise InputError(f"{host.data_path}: services: missing", 'write services = {"chat": {"model": "MiniMax-M2.5"}}')
    path = host.origins["services"]
    services = [service for service in read_services(said, path, rig) if service.enabled]
    requests = [planning_request(rig, service, catalogue, lock, path) for service in services]
    if host.data.get("monitoring") is not None:
        from rigup.planner.monitoring import read_monitoring

        read_monitoring(host.data["monitoring"], f"{host.origins['monitoring']}: monitoring", rig, services)
    return requests
