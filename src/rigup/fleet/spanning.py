"""The hosts of services that span several, in a run: their plans made exact by what was probed, and what they share.

Hosts go at their own pace, each in a greenlet of its own. The hosts of a set meet where one may not go on without the
others. A host that cannot take part keeps its whole set from being begun.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from gevent.pool import Pool

from rigup.errors import HostFailed, InputError
from rigup.facts.network import HostNetwork, NetworkOfHost
from rigup.fleet.lan_address import lan_address
from rigup.fleet.result import JOINED as STANDS_BEHIND
from rigup.fleet.result import NO_ANSWER, HostResult
from rigup.layout import unit_name
from rigup.node import Node
from rigup.operations.node_binding import Binding, bound_nodes
from rigup.operations.progress import Progress, report
from rigup.operations.releases import SET_KEY
from rigup.operations.rendezvous import Rendezvous
from rigup.operations.set_releases import JOINED, SetPart, listed
from rigup.plan import Finding, Plan
from rigup.planner.nodes import addressed
from rigup.render.watch import watch_of
from rigup.verify.generation import RELEASE_SECONDS, Answer, ask_release, ask_service

if TYPE_CHECKING:
    from rigup.fleet.runner import Run

TAKES_PART = ("pending", "differs")
WITHOUT_OTHERS_SECONDS = 5


@dataclass(frozen=True)
class HostSet:
    """Hosts that serve together, by rank. changing, asking: where they meet to change, and when all are asked."""

    hosts: tuple[str, ...]
    changing: Rendezvous = field(init=False)
    asking: Rendezvous = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "changing", Rendezvous(self.hosts))
        object.__setattr__(self, "asking", Rendezvous(self.hosts))

    def begin(self, gone: Mapping[str, str]) -> None:
        """A new phase of the run."""
        self.changing.begin(gone)
        self.asking.begin(gone)

    def leave(self, host: str, why: str) -> None:
        """A host is done with this phase, or failed."""
        self.changing.leave(host, why)
        self.asking.leave(host, why)


class Sets:
    """All sets of a run, which only looks, or not.

    of: by host. offline: the plans as they were before anything was probed.
    """

    def __init__(self, sets: Iterable[tuple[str, ...]], plans: Mapping[str, tuple[Plan, ...]]) -> None:
        self.all = [HostSet(hosts) for hosts in sets]
        self.of = {host: each for each in self.all for host in each.hosts}
        self.offline, self.looking = dict(plans), False

    def begin(self, run: Run, hosts: list[Any]) -> list[Any]:
        """A new phase, for these hosts: each set's next to each other, so that none waits for one that cannot begin."""
        names = {host.name for host in hosts}
        for each in self.all:
            each.begin({name: why(run.results.get(name)) for name in each.hosts if name not in names})
        largest = max(len(each.hosts) for each in self.all)
        if largest > run.state.pool.size:
            run.state.pool = Pool(largest)
        place = {host.name: index for index, host in enumerate(hosts)}
        first = {host: min(place.get(name, len(place)) for name in each.hosts) for host, each in self.of.items()}
        return sorted(hosts, key=lambda host: (first.get(host.name, place[host.name]), place[host.name]))

    def leave(self, name: str, result: HostResult) -> None:
        """A host has ended its part of a phase."""
        if name in self.of:
            self.of[name].leave(name, why(result))

    def bind(self, run: Run) -> None:
        """Makes the plans exact. A run that only looks goes on without a host that is not there."""
        networks: dict[str, HostNetwork] = {}
        self.looking = run.only_looks

        def read(host: Any) -> None:
            networks[host.name] = host.get_fact(NetworkOfHost)

        run._each(read, self.of.keys())
        said = {host.name: lan_address(host.data) for host in run.project.hosts}
        addresses = {name: address for name, address in said.items() if address is not None}
        for each in self.all:
            if all(name in networks for name in each.hosts):
                self._bind(run, each, networks, addresses)
            elif run.only_looks:
                self._bind_as_recorded(run, each)
            else:
                absent = {name: why(run.results[name]) for name in each.hosts if name not in networks}
                self.not_begun(run, each, absent)

    def _bind(self, run: Run, each: HostSet, networks: Mapping[str, HostNetwork], addresses: Mapping[str, str]) -> None:
        services = list(zip(*(self.offline[name] for name in each.hosts), strict=True))
        bindings = [bound_nodes(plans, networks, addresses) for plans in services]
        self._warn(bindings)
        refusals = {name: found for binding in bindings for name, found in binding.refusals.items()}
        if refusals:
            self._refuse(run, each, refusals)
            return
        self._keep(run, each, [binding.plans for binding in bindings])

    def _warn(self, bindings: Iterable[Binding]) -> None:
        told = {(name, f.message): None for b in bindings for name, found in b.warnings.items() for f in found}
        for name, message in told:
            report(Progress(name, "log", text=message))

    def _keep(self, run: Run, each: HostSet, services: list[tuple[Plan, ...]]) -> None:
        made = [tuple(p.model_copy(update={"whole": whole_of(plans)}) for p in plans) for plans in services]
        for rank, name in enumerate(each.hosts):
            run.plans[name] = tuple(plans[rank] for plans in made)

    def _bind_as_recorded(self, run: Run, each: HostSet) -> None:
        """With the addresses that a release of these hosts was made with; without one the plans stay inexact."""
        services = list(zip(*(self.offline[name] for name in each.hosts), strict=True))
        made = []
        for plans in services:
            nodes = self._recorded(run, each, plans[0].service.name)
            made.append(tuple(addressed(plan, nodes) for plan in plans) if nodes else plans)
        self._keep(run, each, made)

    def _recorded(self, run: Run, each: HostSet, service: str) -> tuple[Node, ...]:
        for name in each.hosts:
            probe = run.results[name].probe
            release = (probe.releases.get(service) if probe else None) or {}
            nodes = tuple(Node(**node) for node in (release.get(SET_KEY) or {}).get("nodes") or ())
            if tuple(node.host for node in nodes) == each.hosts:
                return nodes
        return ()

    def not_begun(self, run: Run, each: HostSet, absent: Mapping[str, str]) -> None:
        """The others of a set of which some cannot take part."""
        for name in each.hosts:
            result = run.results[name]
            if result.state in TAKES_PART:
                services = listed([plan.service.name for plan in self.offline.get(name, ())]) or "what it serves"
                said = f"{name}: {services} spans {listed(each.hosts)}, and nothing was begun: "
                result.fail("not begun", HostFailed(said + listed(absent.values()), "all of them take part, or none"))

    def spread(self, run: Run) -> None:
        """After comparing: what one host of a set has to change all have, and none where one cannot take part."""
        for each in self.all:
            results = [run.results[name] for name in each.hosts]
            if not any(result.state == "differs" for result in results):
                continue
            if absent := {result.host: why(result) for result in results if result.state not in TAKES_PART}:
                if not run.only_looks:
                    self.not_begun(run, each, absent)
                continue
            if not run.only_looks and not self._reach_each_other(run, each):
                continue
            for result in results:
                result.state = "differs"

    def _reach_each_other(self, run: Run, each: HostSet) -> bool:
        """Whether the hosts of a set reach one another; where some do not, nothing of the set is begun."""
        from rigup.fleet.preflight_network import check_reachable

        refusals = check_reachable(run, each.hosts)
        self._refuse(run, each, refusals)
        return not refusals

    def _refuse(self, run: Run, each: HostSet, refusals: Mapping[str, tuple[Finding, ...]]) -> None:
        for name, findings in refusals.items():
            run.results[name].fail("refused", *(InputError(f"{name}: {f.message}", f.hint) for f in findings))
        if refusals:
            self.not_begun(run, each, {name: why(run.results[name]) for name in refusals})

    def units(self, names: Collection[str]) -> list[list[str]]:
        """These hosts, in order, those of one set together."""
        units: dict[str, list[str]] = {}
        for name in names:
            units.setdefault(self.of[name].hosts[0] if name in self.of else name, []).append(name)
        return list(units.values())

    def part(self, plan: Plan) -> SetPart:
        """A host's part in changing one of its services."""
        watch = watch_of(plan)
        return SetPart(
            plan.service.name,
            self.of[plan.host].changing,
            self.of[plan.host].hosts,
            plan.rank,
            {node.host: node.address for node in plan.nodes[1:]},
            watch.port if watch else None,
            partial(ask_again, service=plan.service.name, wait_s=plan.start_timeout_s),
            self.looking,
        )

    def answer(self, run: Run, host: Any, plan: Plan) -> Answer | None:
        """What the head says; None for another host whose part runs, and whose head has answered.

        Raises HostFailed: of the head with whom it waits for, of the others with what is wrong with them or with it.
        Notes the standing of each.
        """
        each, name = self.of[host.name], plan.service.name
        each.changing.leave(host.name)
        if plan.rank:
            self._ask_about(run, host, plan, each)
            return None
        standing = run.results[host.name].standing
        wrong = _trouble(run, host, plan)
        told = each.asking.meet(host.name, f"{name}: runs", "", each.hosts)
        lacking = {other: said for other, said in told.said.items() if said}
        lacking |= {other: run.results[other].state for other in told.gone}
        try:
            answer = self._ask(run, host, plan, bool(lacking))
        except HostFailed as error:
            each.asking.say(host.name, f"{name}: answers", error.message)
            standing[name] = wrong or NO_ANSWER
            if not lacking:
                raise
            standing[name] = f"{NO_ANSWER}: waits for {listed(lacking)}"
            waits = listed([f"{other} ({said})" for other, said in lacking.items()])
            raise HostFailed(f"{host.name}: {name}: no answer: waits for {waits}", error.hint) from None
        each.asking.say(host.name, f"{name}: answers", "")
        standing.pop(name, None)
        return answer

    def _ask_about(self, run: Run, host: Any, plan: Plan, each: HostSet) -> None:
        """Of a host that is no head: whether its part runs, and its head answers. Raises HostFailed."""
        name, head, standing = plan.service.name, each.hosts[0], run.results[host.name].standing
        wrong = _trouble(run, host, plan)
        each.asking.say(host.name, f"{name}: runs", wrong)
        told = each.asking.meet(host.name, f"{name}: answers", wrong, (head, host.name))
        if wrong:
            standing[name] = wrong
            raise HostFailed(f"{host.name}: {name}: {wrong}", f"on the host: journalctl -u {unit_name(name)}")
        if head in told.gone or told.said[head]:
            standing[name] = f"{NO_ANSWER} of {head}"
            raise HostFailed(f"{host.name}: {name}: its head {head} does not answer")
        standing[name] = STANDS_BEHIND

    def _ask(self, run: Run, host: Any, plan: Plan, without_others: bool) -> Answer:
        if not without_others:
            return run.answer_alone(host, plan)
        return ask_service(host, plan, max_tokens=1, wait_s=WITHOUT_OTHERS_SECONDS, timeout_s=WITHOUT_OTHERS_SECONDS)


def sets_in(plans: Mapping[str, tuple[Plan, ...]]) -> list[tuple[str, ...]]:
    """The hosts of each service that spans several, by rank."""
    return list(dict.fromkeys(tuple(n.host for n in plan.nodes) for of in plans.values() for plan in of if plan.nodes))


def whole_of(plans: tuple[Plan, ...]) -> str:
    """A digest of all that the hosts of a service run; plans: by rank."""
    parts = [plan.model_dump(mode="json", include={"build", "checkpoint", "command", "environment"}) for plan in plans]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def ask_again(host: Any, manifest: Mapping[str, Any], service: str, wait_s: float = RELEASE_SECONDS) -> None:
    """Asks a release that was put back, as its argv says that it listens."""
    ask_release(host, service, manifest.get("command") or (), wait_s)


def _trouble(run: Run, host: Any, plan: Plan) -> str:
    """Why this host's part does not run, as far as its probe shows; "" where it was started in this run."""
    probe, name = run.results[host.name].probe, plan.service.name
    if name in host.connector_data.get(JOINED, ()) or probe is None:
        return ""
    if name not in probe.releases:
        return "was never applied here"
    state = probe.units[name].active if name in probe.units else "absent"
    return "" if state == "active" else f"unit {state}"


def why(result: HostResult | None) -> str:
    """Why a host takes no part any more; "" where nothing is wrong with it."""
    if result is None or result.state in (*TAKES_PART, "unchanged", "changed"):
        return ""
    return "; ".join(error.message for error in result.errors) or f"{result.host}: {result.state}"
