"""Node groups in a run: their plans bound to addresses, and their hosts kept in step.

Each host works at its own pace in its own greenlet. The hosts of a group wait for one another before any of them makes
a change that all depend on. A group is not started if one of its hosts cannot take part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from rigup.errors import HostFailed, InputError
from rigup.facts.network import HostNetwork, NetworkOfHost
from rigup.host import Host, state_of
from rigup.layout import unit_name
from rigup.node import Node
from rigup.operations.multinode.node_binding import NodeBinding, bind_nodes
from rigup.operations.multinode.releases import GroupMember, StartedServices, listed
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.answer import Answer
from rigup.operations.service.gpu_binding import BoundNodes, bound_nodes
from rigup.operations.service.health import ask_release, ask_service
from rigup.plan import BoundPlan, Finding, Plan
from rigup.project.lan_address import lan_address
from rigup.run.context import RunContext
from rigup.run.multinode.groups import NodeGroup, absence
from rigup.run.multinode.reachability import check_reachable
from rigup.run.result import NO_ANSWER, TAKES_PART, WORKER_READY
from rigup.systemd.release import GROUP_KEY
from rigup.systemd.run_together import watch_of

WITHOUT_WORKERS_SECONDS = 5


class GroupCoordinator:
    """Binds the plans of the run's node groups and keeps their hosts in step."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._bound: dict[tuple[str, ...], dict[str, BoundNodes]] = {}

    def bind(self) -> None:
        """Binds the plans to the addresses of the hosts. A read-only run continues without hosts it cannot reach."""
        networks: dict[str, HostNetwork] = {}
        results = self.context.results

        def read(host: Host) -> None:
            networks[host.name] = host.get_fact(NetworkOfHost)

        self.context.each(read, self.context.groups.of.keys())
        given = {host.name: lan_address(host.data) for host in self.context.project.hosts}
        addresses = {name: address for name, address in given.items() if address is not None}
        for group in self.context.groups.all:
            if all(name in networks for name in group.hosts):
                self._bind(group, networks, addresses)
            elif self.context.read_only:
                self._bind_as_recorded(group)
            else:
                self._not_started(group, {n: absence(results[n]) for n in group.hosts if n not in networks})

    def _bind(self, group: NodeGroup, networks: Mapping[str, HostNetwork], addresses: Mapping[str, str]) -> None:
        bindings = [bind_nodes(plans[0], networks, addresses) for plans in self._services(group)]
        self._warn(bindings)
        refusals = {name: found for binding in bindings for name, found in binding.refusals.items()}
        if refusals:
            self._refuse(group, refusals)
            return
        self._keep(group, [binding.nodes for binding in bindings])

    def _warn(self, bindings: Iterable[NodeBinding]) -> None:
        warnings = {(name, f.message): None for b in bindings for name, found in b.warnings.items() for f in found}
        for name, message in warnings:
            report(Progress(name, "log", text=message))

    def _keep(self, group: NodeGroup, nodes: Iterable[tuple[Node, ...]]) -> None:
        services = zip(self._services(group), nodes, strict=True)
        self._bound[group.hosts] = {plans[0].service.name: bound_nodes(plans, found) for plans, found in services}

    def _services(self, group: NodeGroup) -> list[tuple[Plan, ...]]:
        """The plans of each service of a group, by rank."""
        return list(zip(*(self.context.plans[name] for name in group.hosts), strict=True))

    def bound_nodes(self, host: str) -> dict[str, BoundNodes]:
        """The nodes of a host's group by service, with addresses; {} before binding, or without a group."""
        of = self.context.groups.of
        return self._bound.get(of[host].hosts, {}) if host in of else {}

    def _bind_as_recorded(self, group: NodeGroup) -> None:
        """Uses the addresses in a release of these hosts; without one the plans stay unbound."""
        self._keep(group, [self._recorded(group, plans[0].service.name) for plans in self._services(group)])

    def _recorded(self, group: NodeGroup, service: str) -> tuple[Node, ...]:
        for name in group.hosts:
            probe = self.context.results[name].probe
            release = (probe.releases.get(service) if probe else None) or {}
            nodes = tuple(Node(**node) for node in (release.get(GROUP_KEY) or {}).get("nodes") or ())
            if tuple(node.host for node in nodes) == group.hosts and all(node.address for node in nodes):
                return nodes
        return ()

    def _not_started(self, group: NodeGroup, absent: Mapping[str, str]) -> None:
        """Fails the other hosts of a group if some cannot take part."""
        for name in group.hosts:
            result = self.context.results[name]
            if result.state in TAKES_PART:
                services = listed([plan.service.name for plan in self.context.plans.get(name, ())]) or "its service"
                message = f"{name}: {services} spans {listed(group.hosts)}; nothing was started: "
                hint = "make every host of the node group available, then run the same command again"
                result.fail("not begun", HostFailed(message + listed(absent.values()), hint))

    def spread(self) -> None:
        """After comparing: if one host of a group has changes, all have; none starts if one cannot take part."""
        for group in self.context.groups.all:
            results = [self.context.results[name] for name in group.hosts]
            if not any(result.state == "differs" for result in results):
                continue
            if absent := {result.host: absence(result) for result in results if result.state not in TAKES_PART}:
                if not self.context.read_only:
                    self._not_started(group, absent)
                continue
            if not self.context.read_only and not self._reach_each_other(group):
                continue
            for result in results:
                result.state = "differs"

    def _reach_each_other(self, group: NodeGroup) -> bool:
        """Whether the hosts of a group can reach one another; the group is not started if they cannot."""
        nodes = self.bound_nodes(group.hosts[0]).values()
        addresses = {node.host: node.address for bound in nodes for node in bound.nodes}
        refusals = check_reachable(self.context, group.hosts, addresses)
        self._refuse(group, refusals)
        return not refusals

    def _refuse(self, group: NodeGroup, refusals: Mapping[str, tuple[Finding, ...]]) -> None:
        results = self.context.results
        for name, findings in refusals.items():
            results[name].fail("refused", *(InputError(f"{name}: {f.message}", f.hint) for f in findings))
        if refusals:
            self._not_started(group, {name: absence(results[name]) for name in refusals})

    def member(self, plan: BoundPlan) -> GroupMember:
        """The membership of a plan's host in the node group that serves it."""
        watch, group = watch_of(plan), self.context.groups.of[plan.host]
        return GroupMember(
            plan.service.name,
            group.changing,
            group.hosts,
            plan.rank,
            {node.host: node.address for node in plan.nodes[1:]},
            watch.port if watch else None,
            partial(ask_release, service=plan.service.name, wait_s=plan.start_timeout_s),
            self.context.read_only,
        )

    def answer(self, host: Host, plan: Plan, ask: Callable[[Host, Plan], Answer]) -> Answer | None:
        """The head's answer, by `ask`; None for a worker whose part runs and whose head has answered.

        Records the health of each worker. Raises HostFailed: for the head with the missing workers, for a worker with
        its own problem or its head's.
        """
        group, name = self.context.groups.of[host.name], plan.service.name
        group.changing.leave(host.name)
        if plan.rank:
            self._check_worker(host, plan, group)
            return None
        health = self.context.results[host.name].worker_health
        problem = self._problem(host, plan)
        state = group.checking.wait(host.name, f"{name}: runs", "", group.hosts)
        missing = {other: reason for other, reason in state.values.items() if reason}
        missing |= {other: self.context.results[other].state for other in state.left}
        try:
            answer = _ask_briefly(host, plan) if missing else ask(host, plan)
        except HostFailed as error:
            group.checking.post(host.name, f"{name}: answers", error.message)
            health[name] = problem or NO_ANSWER
            if not missing:
                raise
            health[name] = f"{NO_ANSWER}: waiting for {listed(missing)}"
            waits = listed([f"{other} ({why})" for other, why in missing.items()])
            raise HostFailed(f"{host.name}: {name}: no answer: waiting for {waits}", error.hint) from None
        group.checking.post(host.name, f"{name}: answers", "")
        health.pop(name, None)
        return answer

    def _check_worker(self, host: Host, plan: Plan, group: NodeGroup) -> None:
        """Checks that a worker's part runs and its head answers. Raises HostFailed."""
        name, head, health = plan.service.name, group.hosts[0], self.context.results[host.name].worker_health
        problem = self._problem(host, plan)
        group.checking.post(host.name, f"{name}: runs", problem)
        state = group.checking.wait(host.name, f"{name}: answers", problem, (head, host.name))
        if problem:
            health[name] = problem
            raise HostFailed(f"{host.name}: {name}: {problem}", f"on the host: journalctl -u {unit_name(name)}")
        if head in state.left or state.values[head]:
            health[name] = f"{NO_ANSWER} of {head}"
            raise HostFailed(f"{host.name}: {name}: its head {head} does not answer")
        health[name] = WORKER_READY

    def _problem(self, host: Host, plan: Plan) -> str:
        """The problem of this host's part, from its probe; "" if this run has started it."""
        probe, name = self.context.results[host.name].probe, plan.service.name
        if name in state_of(host, StartedServices).services or probe is None:
            return ""
        if name in probe.damaged:
            return f"its release cannot be read: {probe.damaged[name]}"
        if name not in probe.releases:
            return "never applied"
        state = probe.units[name].active if name in probe.units else "absent"
        return "" if state == "active" else f"unit {state}"


def _ask_briefly(host: Host, plan: Plan) -> Answer:
    """The answer of a head whose workers are missing; it may never arrive."""
    return ask_service(host, plan, wait_s=WITHOUT_WORKERS_SECONDS, timeout_s=WITHOUT_WORKERS_SECONDS)
