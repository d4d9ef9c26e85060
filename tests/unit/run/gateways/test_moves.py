"""A new port or key of a service behind a gateway is refused to a rollout, and nothing else is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import InputError
from rigup.gateway.servers import backend_name, server_name
from rigup.gateway_settings import GatewaySettings
from rigup.run.gateways.moves import KEY_STEP, check_moves
from rigup.run.result import Change, HostResult
from rigup.settings import HostSettings
from tests.unit.gateway.test_servers import plan

HEAD = "1\n# be_name srv_name srv_admin_state srv_port\n"
KEY = Change("service", f"{KEY_STEP}s")


def check(running: str, *changes: Change) -> None:
    """plan() has everything at port 1, and here a key."""
    gateway = plan()
    routes = [
        route.model_copy(
            update={"backends": tuple(one.model_copy(update={"wants_key": True}) for one in route.backends)}
        )
        for route in gateway.routes
    ]
    settings = {"gw": HostSettings(gateway=GatewaySettings(gateway.model_copy(update={"routes": tuple(routes)})))}
    results = {name: HostResult(name, "differs", list(changes)) for name in "abc"}
    context: Any = SimpleNamespace(settings=settings, results=results)
    drains: Any = SimpleNamespace(server_states=lambda: {"gw": HEAD + running, "other": ""} if running else {})
    context.settings["other"] = HostSettings()
    check_moves(context, drains)


def row(port: int) -> str:
    backend = plan().routes[0].backends[0]
    return f"{backend_name('m')} {server_name(backend)} 0 {port}\n"


def test_what_stays_where_it_is_may_roll() -> None:
    check(row(1), Change("service", "release of s"))
    check("", KEY)
    check("model-m elsewhere.s 0 9\n", KEY)


@pytest.mark.parametrize(
    ("running", "changes", "message"),
    [
        (row(8), (), "a: s: its port changes from 8 to 1, which cannot be rolled out behind the gateway gw"),
        (row(1), (KEY,), "a: s: its API key changes, which cannot be rolled out behind the gateway gw"),
    ],
)
def test_a_new_port_or_key_is_refused(running: str, changes: tuple[Change, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        check(running, *changes)
    assert (caught.value.message, caught.value.exit_code) == (message, 2)
    assert "without --rolling" in (caught.value.hint or "")
