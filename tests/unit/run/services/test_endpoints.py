"""Which endpoints the hosts of a run have, and what is said where one is missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import InputError
from rigup.facts.probe import Probe
from rigup.project.inventory import HostEntry, Project
from rigup.run.hosts_run import check_services, services_in
from rigup.run.result import HostResult
from rigup.run.services.endpoints import endpoints_of

CHAT = {"command": ["serve", "--port", "8001", "--alias", "M"]}
GROUP = {**CHAT, "set": {"id": "d", "nodes": [{"host": "a"}, {"host": "b"}]}}


def run_with(probes: dict[str, Probe], **data: Any) -> Any:
    entries = tuple(
        HostEntry(name, "boxes", {"services": {"chat": {}}, **data}, {key: "group_data/boxes.py" for key in data})
        for name in probes
    )
    project = Project(Path(), Path(), entries, entries)
    handshakes = {name: SimpleNamespace(probe=probe) for name, probe in probes.items()}
    return SimpleNamespace(
        context=SimpleNamespace(project=project, handshakes=handshakes),
        results={name: HostResult(name) for name in probes},
    )


def found(run: Any, *services: str) -> list[tuple[str, str, str]]:
    return [(endpoint.host, endpoint.service, endpoint.url) for endpoint in endpoints_of(run, services)]


def test_services_of_the_inventory_and_those_left_over() -> None:
    run = run_with({"a": Probe(current={"chat": "1", "old": "2"}, releases={"chat": CHAT, "old": {}})})
    assert found(run) == [("a", "chat", "http://127.0.0.1:8001"), ("a", "old", "http://127.0.0.1:8000")]
    assert found(run, "chat") == [("a", "chat", "http://127.0.0.1:8001")]


def test_a_node_group_has_one_at_its_head() -> None:
    probe = Probe(current={"chat": "1"}, releases={"chat": GROUP})
    assert found(run_with({"a": probe, "b": probe})) == [("a", "chat", "http://127.0.0.1:8001")]


def test_one_that_was_never_applied_matters_where_it_is_named() -> None:
    run = run_with({"a": Probe()})
    assert found(run) == []
    assert run.results["a"].ok is False and run.results["a"].errors == []
    assert found(run, "chat") == []
    (error,) = run.results["a"].errors
    assert (error.message, error.hint) == ("a: chat was never applied", "run rigup diff to see what apply would do")


def test_a_stopped_one_matters_where_it_is_named() -> None:
    run = run_with({"a": Probe(current={"chat": "1"}, releases={"chat": CHAT}, stopped=("chat",))})
    assert found(run) == []
    assert found(run, "chat") == []
    (error,) = run.results["a"].errors
    assert (error.message, error.hint) == ("a: chat is stopped", "start it: rigup start chat")


def test_a_release_that_cannot_be_read() -> None:
    run = run_with({"a": Probe(current={"chat": "1"}, damaged={"chat": "release.json is not JSON"})})
    assert found(run) == []
    assert run.results["a"].errors[0].message == "a: release.json is not JSON"


def test_a_gateway() -> None:
    assert found(run_with({"a": Probe()}, gateway={"port": 9000}), "gateway") == [
        ("a", "gateway", "http://127.0.0.1:9000")
    ]


def test_services_that_take_turns_are_one_of_the_name_of_the_first() -> None:
    turns = {name: {"swap": True} for name in ("chat", "coder")}
    services = {"off": {"swap": True, "enabled": False}, **turns, "alone": {}}
    entries = (HostEntry("a", "boxes", {"services": services}),)
    assert services_in(entries) == ("off", "chat", "alone")
    with pytest.raises(InputError) as raised:
        check_services(Project(Path(), Path(), entries, entries), ("coder",))
    assert (raised.value.message, raised.value.hint) == (
        "coder takes turns with chat, in its unit",
        "name chat instead",
    )


def test_each_service_that_takes_turns_has_its_model_at_the_port_of_the_first() -> None:
    services = {"services": {"chat": {"swap": True}, "coder": {"swap": True}, "new": {"swap": True}}}
    members = {"chat": {"model": "M"}, "coder": {"model": "c:8b"}}
    run = run_with({"a": Probe(current={"chat": "1"}, releases={"chat": {**CHAT, "members": members}})}, **services)
    check_services(run.context.project, ("chat", "coder"), members=True)
    assert [(one.service, one.model) for one in endpoints_of(run, ())] == [("chat", "M")]
    assert [(one.service, one.model) for one in endpoints_of(run, ("chat",))] == [("chat", "M")]
    (coder,) = endpoints_of(run, ("coder",))
    assert (coder.where, coder.url, coder.model) == ("a: coder", "http://127.0.0.1:8001", "c:8b")
    assert (coder.unit, coder.key_file) == ("rigup-chat.service", "/etc/rigup/services/chat/api-key")
    assert endpoints_of(run, ("new",)) == []
    assert [error.message for error in run.results["a"].errors] == ["a: new was never applied"]


def test_a_group_that_is_stopped_is_started_by_the_name_of_the_first() -> None:
    turns = {"services": {"chat": {"swap": True}, "coder": {"swap": True}}}
    run = run_with({"a": Probe(current={"chat": "1"}, releases={"chat": CHAT}, stopped=("chat",))}, **turns)
    assert endpoints_of(run, ("coder",)) == []
    (error,) = run.results["a"].errors
    assert (error.message, error.hint) == ("a: coder is stopped", "start it: rigup start chat")


def test_a_name_elsewhere_in_the_inventory() -> None:
    entries = tuple(
        HostEntry(name, "boxes", {"services": {service: {}}}) for name, service in {"a": "chat", "b": "coder"}.items()
    )
    project = Project(Path(), Path(), entries[:1], entries)
    with pytest.raises(InputError) as raised:
        check_services(project, ("coder",))
    assert (raised.value.message, raised.value.hint) == (
        'no service "coder" on these hosts',
        "change --limit: it is on b",
    )
    check_services(project, ("chat", "gateway"), ("gateway",))
