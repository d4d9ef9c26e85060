"""Hosts are taken out of every gateway before they are changed, and back after. The gateway is a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from rigup.errors import HostFailed, InputError
from rigup.host import state_of
from rigup.operations.gateway.admin import DrainedNow
from rigup.project.inventory import HostEntry
from rigup.run.gateways import drains as gateway_drains
from rigup.run.gateways.drains import GatewayDrains, check_gateways, patience_of
from rigup.run.result import HostResult

AWAY = "the gateway cannot be reached"
HEAD = "# pxname,svname,scur,status,weight\n"


@dataclass(eq=False)
class Machine:
    """A host of the run."""

    name: str
    connected: bool = True
    installed: bool = True
    connector_data: dict[Any, Any] = field(default_factory=dict)

    @property
    def drained(self) -> set[str]:
        return state_of(self, DrainedNow).servers  # type: ignore[arg-type]


class Gateway:
    """Stands for HAProxy: what it was told, and how many requests each server has at each look."""

    def __init__(self, statuses: dict[str, str], in_flight: list[int] | None = None) -> None:
        self.statuses, self.in_flight, self.told = statuses, in_flight or [0], list[str]()

    def answer(self, command: str) -> str:
        if command == "show stat":
            left = self.in_flight.pop(0) if len(self.in_flight) > 1 else self.in_flight[0]
            self.told.append(f"asked, {left} in flight")
            rows = [f"{name.replace('/', ',')},{left},{status},1" for name, status in self.statuses.items()]
            return HEAD + "\n".join(rows)
        _, _, name, _, state = command.split()
        self.told.append(f"{name} {state}")
        self.statuses[name] = "DRAIN" if state == "drain" else "UP"
        return ""

    @property
    def orders(self) -> list[str]:
        """What it was told to do, without what it was asked."""
        return [one for one in self.told if not one.startswith("asked")]


@contextmanager
def _here(*_: Any) -> Iterator[None]:
    yield


@pytest.fixture
def drains(monkeypatch: pytest.MonkeyPatch) -> tuple[GatewayDrains, Gateway]:
    gateway = Gateway({f"model-m/{name}.s": "UP" for name in "abc"} | {"model-n/c.s": "UP"})
    monkeypatch.setattr(gateway_drains.pyinfra_internals, "at_work_on", _here)
    monkeypatch.setattr(gateway_drains, "tell", lambda host, *commands: tuple(map(gateway.answer, commands)))
    monkeypatch.setattr(gateway_drains.remote, "run", lambda host, *words: SimpleNamespace(ok=host.installed))
    monkeypatch.setattr(gateway_drains, "POLL_SECONDS", 0.0)
    names = ("a", "b", "c", "gw")
    hosts = [Machine(name) for name in names]
    state: Any = SimpleNamespace(inventory=hosts)
    results = {name: HostResult(name, "changed") for name in names}
    return GatewayDrains(state, ["gw"], results, dict.fromkeys("abc", 5.0)), gateway


@pytest.fixture
def machine(drains: tuple[GatewayDrains, Gateway]) -> Machine:
    """The host that the gateway runs on."""
    found: Machine = drains[0].state.inventory[3]
    return found


@pytest.fixture
def cancelled(drains: tuple[GatewayDrains, Gateway], monkeypatch: pytest.MonkeyPatch) -> tuple[GatewayDrains, Gateway]:
    """Ctrl-C while requests are in flight that do not end."""
    drains[1].in_flight = [7]
    monkeypatch.setattr(gateway_drains.jobs, "cancelled", lambda: True)
    return drains


def test_a_host_is_drained_until_nothing_is_in_flight(drains: tuple[GatewayDrains, Gateway], machine: Machine) -> None:
    found, gateway = drains
    gateway.in_flight = [4, 3, 1, 0]
    found.begin(["a"])
    told = ["asked, 4 in flight", "model-m/a.s drain", "asked, 3 in flight", "asked, 1 in flight", "asked, 0 in flight"]
    assert gateway.told == told
    assert machine.drained == {"model-m/a.s"}
    found.end(["a"])
    assert machine.drained == set()
    assert gateway.told[len(told) + 1] == "model-m/a.s ready"
    assert found.gateways(["a", "gw"]) == ["gw"]


def test_nobody_waits_longer_than_a_service_may_drain(drains: tuple[GatewayDrains, Gateway]) -> None:
    found, gateway = drains
    gateway.in_flight = [7]
    found.patience = {}
    found.begin(["a"])
    assert gateway.told[-1] == "asked, 7 in flight"


def test_a_model_keeps_a_backend(drains: tuple[GatewayDrains, Gateway]) -> None:
    found, gateway = drains
    with pytest.raises(HostFailed, match="c: gw would have no backend left for n"):
        found.begin(["c"])
    assert gateway.orders == []
    found.allow_outage = True
    found.begin(["c"])
    assert gateway.orders == ["model-m/c.s drain", "model-n/c.s drain"]


def test_what_is_cut_off_is_given_back(drains: tuple[GatewayDrains, Gateway], monkeypatch: pytest.MonkeyPatch) -> None:
    found, gateway = drains

    def cut(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(found, "_wait_until_idle", cut)
    with pytest.raises(KeyboardInterrupt):
        found.begin(["a"])
    assert gateway.told[-1] == "model-m/a.s ready"


def test_ctrl_c_ends_the_wait_before_anything_is_changed(cancelled: tuple[GatewayDrains, Gateway]) -> None:
    found, gateway = cancelled
    with pytest.raises(gateway_drains.jobs.Cancelled):
        found.begin(["a"])
    assert gateway.told[-1] == "model-m/a.s ready"


def stopping(gateway: Gateway, *servers: str) -> Callable[[], None]:
    """Stops these servers: the gateway finds them gone at its next look, whatever it was told."""

    def stop() -> None:
        gateway.told.append("stopped")
        gateway.statuses |= dict.fromkeys(servers, "DOWN")

    return stop


def test_a_service_stops_when_nothing_is_in_flight_and_is_given_back_when_it_is_gone(
    drains: tuple[GatewayDrains, Gateway],
) -> None:
    found, gateway = drains
    gateway.statuses["model-m/c.other"] = "UP"
    gateway.in_flight = [2, 1, 0]
    found.stop({"c": ("s",)}, stopping(gateway, "model-m/c.s", "model-n/c.s"))
    assert gateway.told == [
        "asked, 2 in flight",
        "model-m/c.s drain",
        "model-n/c.s drain",
        "asked, 1 in flight",
        "asked, 0 in flight",
        "stopped",
        "asked, 0 in flight",
        "model-m/c.s ready",
        "model-n/c.s ready",
    ]
    assert found.results["c"].ok


def test_a_gateway_that_does_not_answer_keeps_nothing_from_being_stopped(
    drains: tuple[GatewayDrains, Gateway], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, gateway = drains

    def dead(*_: Any) -> tuple[str, ...]:
        raise HostFailed("gw: silent")

    monkeypatch.setattr(gateway_drains, "tell", dead)
    found.stop({"a": ("s",)}, stopping(gateway))
    machine.connected = False
    found.stop({"a": ("s",)}, stopping(gateway))
    assert gateway.told == ["stopped"] * 2
    assert found.results["a"].ok


def test_ctrl_c_before_a_stop_gives_back_what_was_drained(cancelled: tuple[GatewayDrains, Gateway]) -> None:
    found, gateway = cancelled
    found.stop({"a": ("s",)}, stopping(gateway))
    assert "stopped" not in gateway.told
    assert gateway.told[-1] == "model-m/a.s ready"
    assert found.results["a"].state == "cancelled"


def test_a_gateway_that_is_not_installed_drains_nothing(
    drains: tuple[GatewayDrains, Gateway], machine: Machine
) -> None:
    found, gateway = drains
    machine.installed = False
    found.begin(["c"])
    found.end(["c"])
    assert gateway.told == []


def test_a_gateway_that_is_away_stops_the_rollout(drains: tuple[GatewayDrains, Gateway], machine: Machine) -> None:
    found, _ = drains
    machine.connected = False
    with pytest.raises(HostFailed, match=f"gw: {AWAY}"):
        found.begin(["a"])


@pytest.mark.parametrize(
    "error", [EOFError(), OSError("broken pipe"), gevent.Timeout(60)], ids=lambda error: type(error).__name__
)
def test_a_gateway_that_is_lost_keeps_no_host_drained_at_another(
    drains: tuple[GatewayDrains, Gateway], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    found, gateway = drains
    found.state.inventory.insert(0, Machine("lost"))
    found.names = ["lost", "gw"]
    seen: list[str] = []

    def tell(host: Any, *commands: str) -> tuple[str, ...]:
        if host.name != "lost":
            return tuple(map(gateway.answer, commands))
        seen.extend(commands)
        if len(seen) > 2:
            raise error
        return (f"{HEAD}model-m,a.s,0,UP,1\nmodel-m,b.s,0,UP,1",) if commands[0] == "show stat" else ("",)

    monkeypatch.setattr(gateway_drains, "tell", tell)
    monkeypatch.setattr(gateway_drains.remote, "reconnect", lambda host: False)
    for act in (found.begin, found.end):
        gateway.statuses["model-m/a.s"] = "DRAIN"
        with pytest.raises(HostFailed, match=f"lost: {AWAY}"):
            act(["a"])
        assert gateway.told[-1] == "model-m/a.s ready"


def test_a_lost_connection_is_made_again(
    drains: tuple[GatewayDrains, Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, gateway = drains
    lost = [True]
    monkeypatch.setattr(gateway_drains.remote, "reconnect", lambda host: bool(lost.pop()))

    def tell(host: Any, *commands: str) -> tuple[str, ...]:
        if lost:
            raise EOFError
        return tuple(map(gateway.answer, commands))

    monkeypatch.setattr(gateway_drains, "tell", tell)
    found.begin(["a"])
    assert "model-m/a.s drain" in gateway.told


def test_a_gateway_that_refuses_is_named(
    drains: tuple[GatewayDrains, Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, gateway = drains
    answer = gateway.answer
    monkeypatch.setattr(gateway, "answer", lambda one: answer(one) if one == "show stat" else "Permission denied")
    with pytest.raises(HostFailed, match=r"gw: the gateway cannot drain model-m/a\.s: Permission denied"):
        found.begin(["a"])


def test_a_gateway_without_backends_there_is_not_told(drains: tuple[GatewayDrains, Gateway]) -> None:
    found, gateway = drains
    found.begin(["elsewhere"])
    assert gateway.told == ["asked, 0 in flight"]


def test_a_host_that_does_not_come_back_is_named(
    drains: tuple[GatewayDrains, Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, gateway = drains
    monkeypatch.setattr(gateway_drains, "BACK_SECONDS", 0.0)
    monkeypatch.setattr(
        gateway, "answer", lambda command: f"{HEAD}model-m,a.s,0,DOWN,1" if command == "show stat" else ""
    )
    with pytest.raises(HostFailed, match=r"gw: the gateway finds model-m/a\.s not healthy"):
        found.end(["a"])
    found.results["a"].state = "failed"
    found.end(["a"])


def test_a_limit_that_leaves_out_a_gateway() -> None:
    box = HostEntry("box", "boxes", {"services": {"chat": {}}})
    edge = HostEntry("gw", "edge", {"services": {}, "gateway": {}})
    with pytest.raises(InputError) as caught:
        check_gateways([box], [box, edge])
    assert caught.value.message == "--limit: leaves out gw, which may send requests to the hosts that change"
    check_gateways([edge], [box, edge])
    check_gateways([box, edge], [box, edge])


def test_what_changes_a_host_runs_while_it_gets_no_requests(
    drains: tuple[GatewayDrains, Gateway], machine: Machine
) -> None:
    found, gateway = drains
    found.carry_out(["a"], lambda: gateway.told.append("changed"))
    assert gateway.orders == ["model-m/a.s drain", "changed", "model-m/a.s ready"]
    machine.connected = False
    found.results["a"].state = "differs"
    found.carry_out(["a"], lambda: gateway.told.append("changed again"))
    assert ("changed again" in gateway.told, found.results["a"].state) == (False, "refused")
    assert f"gw: {AWAY}" in found.results["a"].errors[0].message


def test_hosts_whose_drain_was_cancelled_are_cancelled(cancelled: tuple[GatewayDrains, Gateway]) -> None:
    found, gateway = cancelled
    found.results["a"].state = "differs"
    found.carry_out(["a"], lambda: gateway.told.append("changed"))
    assert (found.results["a"].state, "changed" in gateway.told) == ("cancelled", False)


def test_a_gateway_that_serves_is_not_changed_before_the_others(drains: tuple[GatewayDrains, Gateway]) -> None:
    found, _ = drains
    found.names = ["gw", "c"]
    assert found.gateways(["a", "c", "gw"]) == ["gw"]
    assert (found.alone(["a"]), found.alone(["b", "c"]), found.alone(["gw"])) == (False, True, False)


@pytest.mark.parametrize(
    ("services", "seconds"),
    [
        ({"chat": {"drain_timeout": 300}, "code": {}}, {"box": 300.0}),
        ({"chat": {"drain_timeout": "soon"}}, {"box": 120.0}),
        ({"chat": 1}, {}),
        ({}, {}),
    ],
)
def test_how_long_a_host_may_take(services: dict[str, Any], seconds: dict[str, float]) -> None:
    assert patience_of([HostEntry("box", "boxes", {"services": services})]) == seconds
