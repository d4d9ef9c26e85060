"""Hosts that serve together, in a run: who is begun, in which order, and what each says of the service."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from rigup.errors import HostFailed, Unreachable
from rigup.facts.probe import Probe, UnitState
from rigup.node import Node
from rigup.operations.service.answer import Answer
from rigup.plan import Plan
from rigup.project.inventory import HostEntry, Project
from rigup.rig import Rig
from rigup.run.context import RunContext
from rigup.run.multinode.coordinator import GroupCoordinator
from rigup.run.multinode.groups import NodeGroups, node_groups_in
from rigup.run.result import HostResult, State
from rigup.service import Service

HOSTS = ("a", "b")


def plan(rank: int, hosts: tuple[str, ...] = HOSTS, **changes: Any) -> Plan:
    nodes = tuple(Node(host=host, address=f"192.0.2.{rank}") for rank, host in enumerate(hosts))
    service = Service(name="chat", model="m")
    made = Plan(
        host=hosts[rank], group="boxes", verdict="ok", rig=Rig(gpus=()), service=service, nodes=nodes, rank=rank
    )
    return made.model_copy(update=changes)


def plans(*groups: tuple[str, ...]) -> dict[str, tuple[Plan, ...]]:
    return {host: (plan(rank, hosts),) for hosts in groups for rank, host in enumerate(hosts)}


class Run(RunContext):
    """A run whose hosts were probed: `units` is the state of each unit, `reply` what the head answers."""

    def __init__(
        self,
        states: dict[str, State],
        units: dict[str, str] | None = None,
        reply: str = "Paris.",
        groups: tuple[tuple[str, ...], ...] = (HOSTS,),
    ) -> None:
        made = dict.fromkeys(states, ()) | plans(*groups)
        connections = SimpleNamespace(state=SimpleNamespace(pool=SimpleNamespace(size=50), inventory=()))
        project = Project(Path(), Path(), tuple(HostEntry(name, "boxes", {}) for name in states))
        super().__init__(project, made, {}, connections, groups=NodeGroups(groups))  # type: ignore[arg-type]
        self.results = {name: HostResult(name, state) for name, state in states.items()}
        self.reply = reply
        for name, active in (units or {}).items():
            self.results[name].probe = Probe(releases={"chat": {}}, units={"chat": UnitState(active)})

    def ask(self, host: Any, plan: Plan) -> Answer:
        if not self.reply:
            raise HostFailed(f"{host.name}: chat does not answer after 60 s")
        return Answer(host.name, plan.service.name, self.reply, 1, 0.1, 10.0)


class Host:
    """Stands for one of pyinfra's."""

    def __init__(self, name: str) -> None:
        self.name, self.connector_data = name, dict[str, Any]()


def asked(run: Run) -> dict[str, Any]:
    """What comes of asking every host that takes part, side by side: an answer, None, or the error's message."""
    coordinator = GroupCoordinator(run)
    hosts = [Host(name) for name in HOSTS if run.results[name].state == "pending"]
    run.groups.begin(run.results, hosts)  # type: ignore[arg-type]
    found: dict[str, Any] = {}

    def ask(host: Host) -> None:
        try:
            found[host.name] = coordinator.answer(host, plan(HOSTS.index(host.name)), run.ask)  # type: ignore[arg-type]
        except HostFailed as error:
            found[host.name] = error.message

    greenlets = [gevent.spawn(ask, host) for host in hosts]
    gevent.joinall(greenlets, timeout=60, raise_error=True)
    assert all(greenlet.dead for greenlet in greenlets), "somebody waits for good"
    return found


def standing(run: Run) -> list[str | None]:
    return [run.results[name].worker_health.get("chat") for name in HOSTS]


def test_the_head_answers_for_all() -> None:
    run = Run(dict.fromkeys(HOSTS, "pending"), dict.fromkeys(HOSTS, "active"))
    assert asked(run) == {"a": Answer("a", "chat", "Paris.", 1, 0.1, 10.0), "b": None}
    assert standing(run) == [None, "joined"]


def test_a_part_that_failed_is_shown_as_that_and_the_head_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask_service(host: Any, plan: Plan, **short: Any) -> Answer:
        raise HostFailed("a: chat does not answer after 5 s")

    monkeypatch.setattr("rigup.run.multinode.coordinator.ask_service", ask_service)
    run = Run(dict.fromkeys(HOSTS, "pending"), {"a": "active", "b": "failed"}, "")
    assert asked(run) == {"a": "a: chat: no answer: waiting for b (unit failed)", "b": "b: chat: unit failed"}
    assert standing(run) == ["no answer: waiting for b", "unit failed"]


def test_a_host_that_is_not_reached_is_whom_the_head_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask_service(host: Any, plan: Plan, **short: Any) -> Answer:
        raise HostFailed("a: chat does not answer after 5 s")

    monkeypatch.setattr("rigup.run.multinode.coordinator.ask_service", ask_service)
    run = Run({"a": "pending", "b": "unreachable"}, {"a": "active"}, "")
    assert asked(run) == {"a": "a: chat: no answer: waiting for b (unreachable)"}


def test_a_head_that_is_silent_makes_its_followers_say_so() -> None:
    run = Run(dict.fromkeys(HOSTS, "pending"), dict.fromkeys(HOSTS, "active"), "")
    assert asked(run) == {"a": "a: chat does not answer after 60 s", "b": "b: chat: its head a does not answer"}
    assert standing(run) == ["no answer", "no answer of a"]


def test_a_head_that_is_gone_makes_its_followers_say_so() -> None:
    run = Run({"a": "unreachable", "b": "pending"}, {"b": "active"})
    assert asked(run) == {"b": "b: chat: its head a does not answer"}


def test_none_is_begun_where_one_cannot_take_part() -> None:
    run = Run({"a": "differs", "b": "pending"})
    run.results["b"].fail("unreachable", Unreachable("b: connection refused", ""))
    GroupCoordinator(run).spread()
    assert run.results["a"].state == "not begun"
    (error,) = run.results["a"].errors
    assert error.message == "a: chat spans a and b; nothing was started: b: connection refused"


def test_one_with_something_to_change_makes_all_of_its_group_change() -> None:
    run = Run({"a": "pending", "b": "differs", "c": "pending", "d": "pending"}, groups=(HOSTS, ("c", "d")))
    GroupCoordinator(run).spread()
    assert [result.state for result in run.results.values()] == ["differs", "differs", "pending", "pending"]


def test_hosts_of_a_group_begin_next_to_each_other() -> None:
    """Else the first of many groups would fill the pool, each waiting for one that cannot begin."""
    names = ("x", "a", "c", "b", "y", "d")
    run = Run(dict.fromkeys(names, "pending"), groups=(HOSTS, ("c", "d")))
    begun = run.groups.begin(run.results, [Host(name) for name in names])  # type: ignore[arg-type]
    assert [host.name for host in begun] == ["x", "a", "b", "c", "d", "y"]


def test_a_group_larger_than_the_pool_makes_it_larger() -> None:
    hosts = tuple(f"h{number}" for number in range(64))
    run = Run(dict.fromkeys(hosts, "pending"), groups=(hosts,))
    run.each(lambda host: None)
    assert run.state.pool.size == 64


def test_groups_are_those_of_the_plans() -> None:
    alone = plan(0).model_copy(update={"host": "x", "nodes": ()})
    assert node_groups_in({**plans(HOSTS, ("c", "d")), "x": (alone,)}) == [HOSTS, ("c", "d")]
