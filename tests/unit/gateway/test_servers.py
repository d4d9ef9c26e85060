"""What HAProxy says of its backends, and which of them cannot be spared."""

from __future__ import annotations

import pytest

from rigup.gateway.servers import ServerState, in_flight, left_without, read_states, servers_on
from rigup.settings import Backend, Gateway, GatewayPlan, Route

STAT = (
    "# pxname,svname,qcur,qmax,scur,smax,status,weight\n"
    "api,FRONTEND,,,3,9,OPEN,\n"
    "1-m,a.s,0,0,2,5,UP,1\n"
    "1-m,b.s,0,0,1,5,UP 1/2,4\n"
    "1-m,c.s,0,0,0,5,DOWN,1\n"
    "1-m,BACKEND,0,0,3,9,UP,5\n"
    "2-n,c.s,0,0,x,5,UP,1\n"
)
NAMES = ("a", "b", "c")


def plan(hold: int = 0) -> GatewayPlan:
    def backend(host: str) -> Backend:
        about = {"host": host, "group": "g", "service": "s", "address": "::1", "health_path": "/health", "engine": ""}
        return Backend.model_validate({**about, "port": 1, "weight": 1, "wants_key": False})

    routes = (
        Route(model="m", backends=tuple(map(backend, NAMES))),
        Route(model="n", backends=(backend("c"),)),
    )
    return GatewayPlan(host="gw", group="edge", gateway=Gateway(hold=hold), routes=routes)


def test_a_host_is_a_server_of_each_of_its_models() -> None:
    assert servers_on(plan(), ["c", "other"]) == ("1-m/c.s", "2-n/c.s")


def test_only_backends_are_read_and_only_what_makes_sense() -> None:
    states = read_states(STAT)
    assert states == {
        "1-m/a.s": ServerState("UP", 1, 2),
        "1-m/b.s": ServerState("UP", 4, 1),
        "1-m/c.s": ServerState("DOWN", 1, 0),
    }
    assert in_flight(states, ["1-m/a.s", "1-m/b.s", "1-m/x.s"]) == 3


@pytest.mark.parametrize("answer", ["", "Unknown command", "# pxname\n1-m", "\n\n,,,"])
def test_nonsense_is_no_backend(answer: str) -> None:
    assert read_states(answer) == {}


@pytest.mark.parametrize(
    ("hosts", "statuses", "models"),
    [
        (["a"], {"a": "UP", "b": "UP"}, ()),
        (["a", "b"], {"a": "UP", "b": "UP", "c": "DOWN"}, ("m",)),
        (["a"], {"a": "UP", "b": "DRAIN", "c": "MAINT"}, ("m",)),
        (["a"], {"a": "DOWN", "b": "DOWN"}, ()),
        (["c"], {"a": "UP", "c": "UP"}, ("n",)),
    ],
)
def test_a_model_that_nobody_else_serves(hosts: list[str], statuses: dict[str, str], models: tuple[str, ...]) -> None:
    states = {
        f"{section}/{host}.s": ServerState(status, 1, 0)
        for host, status in statuses.items()
        for section in ("1-m", "2-n")
    }
    assert left_without(plan(), states, hosts) == models
    assert left_without(plan(hold=9), states, hosts) == ()


def test_a_backend_of_weight_0_serves_nobody() -> None:
    states = {"1-m/a.s": ServerState("UP", 1, 0), "1-m/b.s": ServerState("UP", 0, 0)}
    assert left_without(plan(), states, ["a"]) == ("m",)
