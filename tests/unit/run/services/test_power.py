"""Stopping and starting services: which are chosen, and what is refused before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.facts.probe import BuiltFor, Nvidia, Probe, UnitState
from rigup.run.services import power
from rigup.run.services.power import PowerRun

RELEASES: dict[str, Any] = {"chat": {"command": []}, "coder": {"command": []}}
RUNS = Probe(
    current={"chat": "1", "coder": "1"},
    releases=RELEASES,
    units={"chat": UnitState("active"), "coder": UnitState("active")},
)
RESTS = replace(RUNS, stopped=("chat",), units={**RUNS.units, "chat": UnitState("inactive")})


@pytest.fixture
def connected(local_run: Callable[..., PowerRun]) -> Callable[..., PowerRun]:
    """Makes runs over one host that has been met and is like this."""

    def make(probe: Probe, **services: dict[str, Any]) -> PowerRun:
        run = local_run({"box": lambda folder: None}, PowerRun)
        with run:
            run.connect(take_lease=False)
        (entry,) = run.context.project.hosts
        entry.data["services"] = services or {"chat": {}, "coder": {}}
        run.context.handshakes["box"] = run.context.handshakes["box"]._replace(probe=probe)
        return run

    return make


@pytest.mark.parametrize(
    ("probe", "verb", "services", "chosen"),
    [
        (RUNS, "stop", (), ("chat", "coder")),
        (RUNS, "stop", ("chat",), ("chat",)),
        (RESTS, "stop", (), ("coder",)),
        (RUNS, "start", (), ()),
        (RESTS, "start", (), ("chat",)),
        (RESTS, "restart", (), ("chat", "coder")),
        (Probe(), "stop", (), ()),
    ],
    ids=range(7),
)
def test_what_is_changed(
    connected: Callable[..., PowerRun], probe: Probe, verb: Any, services: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    run = connected(probe)
    run.choose(verb, services)
    assert run.steps == {"box": chosen}
    assert run.results["box"].errors == []


@pytest.mark.parametrize(
    ("probe", "verb", "services", "inventory", "message"),
    [
        (Probe(), "stop", ("chat",), {}, "box: chat was never applied"),
        (RESTS, "start", ("chat",), {"chat": {"enabled": False}}, "box: chat: the inventory says enabled = False"),
        (replace(RUNS, damaged={"chat": "x is not JSON"}), "stop", (), {}, "box: x is not JSON"),
    ],
    ids=["never applied", "disabled", "damaged"],
)
def test_what_is_refused(
    connected: Callable[..., PowerRun],
    probe: Probe,
    verb: Any,
    services: tuple[str, ...],
    inventory: dict[str, Any],
    message: str,
) -> None:
    run = connected(probe, **inventory)
    run.choose(verb, services)
    assert [error.message for error in run.results["box"].errors] == [message]
    assert run.steps == {"box": ()}


def test_a_service_that_would_not_start_again_is_not_stopped_for_a_restart(connected: Callable[..., PowerRun]) -> None:
    releases = {**RELEASES, "chat": {"command": [], "build": "vllm-1"}}
    moved = Nvidia(loaded="580.95.05", installed="580.178.04")
    probe = replace(RUNS, releases=releases, built_for={"vllm-1": BuiltFor("13.0")}, nvidia=moved)
    run = connected(probe)
    run.choose("restart", ("chat",))
    (error,) = run.results["box"].errors
    assert error.message.startswith("box: chat was left as it is, since it would not start again: driver 580.95.05 ")
    assert (run.steps, error.hint) == ({"box": ()}, "run rigup apply, or reboot the host")
    run = connected(probe)
    run.choose("stop", ("chat",))
    assert run.steps == {"box": ("chat",)}


def test_a_service_over_hosts_is_restarted_on_all_or_none(local_run: Callable[..., PowerRun]) -> None:
    run = local_run({name: lambda folder: None for name in ("head", "worker", "alone")}, PowerRun)
    with run:
        run.connect(take_lease=False)
    spanning = {"command": [], "build": "b", "set": {"id": "d", "nodes": [{"host": "head"}, {"host": "worker"}]}}
    for entry in run.context.project.hosts:
        entry.data["services"] = {"chat": {}}
        manifest = {"command": []} if entry.name == "alone" else spanning
        built = {"b": BuiltFor("13.0")} if entry.name == "worker" else {}
        probe = replace(RUNS, releases={"chat": manifest}, built_for=built)
        run.context.handshakes[entry.name] = run.context.handshakes[entry.name]._replace(probe=probe)
    run.choose("restart", ())
    assert run.steps == {"head": (), "worker": (), "alone": ("chat",)}
    assert "no NVIDIA driver is loaded" in run.results["worker"].errors[0].message
    assert run.results["head"].errors[0].message == "head: chat was left as it is, since it spans worker, too"


def test_a_disabled_service_is_left_alone_where_it_is_not_named(connected: Callable[..., PowerRun]) -> None:
    run = connected(RESTS, chat={"enabled": False}, coder={})
    run.choose("restart", ())
    assert run.steps == {"box": ("coder",)}


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Services in the order in which they are stopped; "chat" fails."""
    stopped: list[str] = []

    def stop(host: Any, service: str) -> None:
        stopped.append(service)
        if service == "chat":
            raise HostFailed("box: rigup-chat.service is still running")

    monkeypatch.setattr(power, "stop", stop)
    monkeypatch.setattr(PowerRun, "_claim", lambda *_: "ours")
    return stopped


def chosen(run: PowerRun, *services: str) -> PowerRun:
    run.context.leases["box"] = type("Lease", (), {"check": lambda self: None, "release": lambda self, *_: None})()  # type: ignore[assignment]
    run.choose("stop", services)
    return run


def test_a_service_that_fails_does_not_keep_the_others_from_stopping(
    connected: Callable[..., PowerRun], stopping: list[str]
) -> None:
    run = chosen(connected(RUNS))
    run.carry_out("stop")
    assert stopping == ["chat", "coder"]
    result = run.results["box"]
    assert (result.state, [change.step for change in result.changes]) == ("failed", ["stop coder"])


def test_hosts_change_one_after_another_where_gateways_send_them_requests(
    connected: Callable[..., PowerRun], stopping: list[str]
) -> None:
    class Drains:
        def carry_out(self, batch: list[str], change: Callable[[], object]) -> None:
            told.append(batch)

        def stop(self, services: dict[str, Any], change: Callable[[], object]) -> None:
            told.append((services, list(stopping)))
            change()

    told: list[Any] = []
    drains: Any = Drains()
    run = chosen(connected(RUNS), "coder")
    run.carry_out("stop", drains)
    assert (told, stopping) == ([({"box": ("coder",)}, [])], ["coder"])
    nothing = chosen(connected(RESTS), "chat")
    nothing.carry_out("stop", drains)
    assert told[1:] == [({}, ["coder"])]
    again = chosen(connected(RUNS), "coder")
    again.carry_out("restart", drains)
    assert told[2:] == [["box"]]
