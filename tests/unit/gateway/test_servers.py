"""What HAProxy says of its backends, and which of them cannot be spared."""

from __future__ import annotations

import pytest

from rigup.gateway.servers import (
    ServerState,
    backend_name,
    in_flight,
    left_without,
    ports_of,
    read_states,
    server_name,
    servers_on,
    taken_out,
)
from rigup.gateway_settings import Backend, Gateway, GatewayPlan, Route

STAT = (
    "# pxname,svname,qcur,qmax,scur,smax,status,weight\n"
    "api,FRONTEND,,,3,9,OPEN,\n"
    "model-m,a.s,0,0,2,5,UP,1\n"
    "model-m,b.s,0,0,1,5,UP 1/2,4\n"
    "model-m,c.s,0,0,0,5,DOWN,1\n"
    "model-m,BACKEND,0,0,3,9,UP,5\n"
    "model-n,c.s,0,0,x,5,UP,1\n"
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
    names = ("model-m/a.s", "model-m/c.s", "model-n/c.s", "model-n/cc.s", "model-n/c.lan.s", "model-n/held")
    assert servers_on(names, ["c", "other"]) == ("model-m/c.s", "model-n/c.s")
    assert servers_on(names, ["ada@c.lan"]) == ("model-n/c.lan.s",)
    assert [server_name(one) for one in plan().routes[1].backends] == ["c.s"]


def test_models_with_like_names_have_sections_of_their_own() -> None:
    assert len({backend_name(model) for model in ("a/b", "a:b", "a-b")}) == 3


def test_only_backends_are_read_and_only_what_makes_sense() -> None:
    states = read_states(STAT)
    assert states == {
        "model-m/a.s": ServerState("UP", 1, 2),
        "model-m/b.s": ServerState("UP", 4, 1),
        "model-m/c.s": ServerState("DOWN", 1, 0),
    }
    assert in_flight(states, ["model-m/a.s", "model-m/b.s", "model-m/x.s"]) == 3


LONG = "9" * 5000
ROW = "# pxname,svname,scur,status,weight\nmodel-m,a.s,{},UP,{}"
STATE_ROW = "1\n# be_name srv_name srv_admin_state\nmodel-m a.s {}"


@pytest.mark.parametrize(
    "answer",
    [
        *("", "Unknown command", "# pxname\nmodel-m", "\n\n,,,"),
        *(ROW.format(text, 1) for text in ("²", "-1", LONG, "1" * 200_000)),
        *(ROW.format(0, text) for text in ("²", "x", LONG)),
        *(STATE_ROW.format(text) for text in ("²", LONG)),
        "# srv_admin_state\n1",
    ],
    ids=lambda answer: answer[:60],
)
def test_nonsense_is_not_a_backend(answer: str) -> None:
    assert read_states(answer) == {}
    assert taken_out(answer) == ()
    assert not any(ports_of(answer).values())


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
        for section in (("model-m", "model-n") if host == "c" else ("model-m",))
    }
    assert left_without(states, hosts) == models
    held = {f"{section}/held": ServerState("no check", 1, 0) for section in ("model-m", "model-n")}
    assert left_without(states | held, hosts) == ()


def test_one_of_two_services_on_a_host_is_enough() -> None:
    states = {"model-n/c.s": ServerState("UP", 1, 0), "model-n/c.t": ServerState("DOWN", 1, 0)}
    assert left_without(states, ["c"]) == ("n",)


def test_a_backend_of_weight_0_serves_nobody() -> None:
    states = {"model-m/a.s": ServerState("UP", 1, 0), "model-m/b.s": ServerState("UP", 0, 0)}
    assert left_without(states, ["a"]) == ("m",)
