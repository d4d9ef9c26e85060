"""What `rigup status` says of gateways: who answers for which model, and what is wrong."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from gevent.pool import Pool
from rich.console import Console

from rigup.cli.output.gateways import gateway_table
from rigup.cli.page.gateway_section import gateway_section
from rigup.errors import HostFailed
from rigup.facts.probe import Probe
from rigup.gateway_settings import GatewaySettings, SharedAddress
from rigup.operations.primitives import remote
from rigup.run.gateways import status as gateway_status
from rigup.run.gateways.status import gateway_as_json, gateways_of
from rigup.run.result import HostResult
from rigup.settings import HostSettings
from tests.unit.gateway.test_servers import plan

STAT = (
    "# pxname,svname,qcur,scur,econ,eresp,hrsp_5xx,status,weight,lastchg\n"
    "model-m,a.s,0,2,1,2,4,UP,4,7200\n"
    "model-m,b.s,0,1,0,0,0,DRAIN,1,30\n"
    "model-m,c.s,0,0,0,0,0,DOWN,1,5\n"
    "model-m,held,0,3,0,0,0,no check,1,5\n"
    "model-m,BACKEND,2,6,0,0,0,UP,1,5\n"
    "model-n,c.s,0,0,0,0,0,DOWN,1,5\n"
)
SERVERS = "1\n# be_name srv_name srv_admin_state\nmodel-m a.s 0\nmodel-m b.s 8\n"
ENDS = "notAfter: Jan  2 00:00:00 2030 GMT"


def seen(answers: tuple[str, ...] | None = (STAT, SERVERS, ENDS)) -> dict[str, Any]:
    return gateway_as_json(plan(), answers)


def test_every_backend_with_its_state() -> None:
    found = seen()
    assert [(one["model"], one["host"], one["state"]) for one in found["backends"]] == [
        *(("m", "a", "up"), ("m", "b", "drained"), ("m", "c", "away")),
        ("n", "c", "away"),
    ]
    first = {key: found["backends"][0][key] for key in ("weight", "in_flight", "queued", "errors", "seconds")}
    assert first == {"weight": 4, "in_flight": 2, "queued": 5, "errors": 7, "seconds": 7200}
    assert found["answers"] and found["certificate_days"] is not None


def test_models_for_which_smg_does_not_choose() -> None:
    found = plan()
    cached = found.model_copy(update={"gateway": found.gateway.model_copy(update={"kind": "cache_aware"})})
    for status, away in (("UP", []), ("DOWN", ["m"])):
        stat = f"{STAT}cached-m,smg,0,2,1,2,4,{status},1,9\n"
        shown = gateway_as_json(cached, (stat, SERVERS, ENDS))
        assert (shown["kind"], shown["prefix_routing_away"]) == ("cache_aware", away)
        console = Console(width=140, record=True, file=io.StringIO())
        console.print(gateway_table([shown]), soft_wrap=True)
        for text in (console.export_text(), str(gateway_section([shown]))):
            assert ("smg is down, so the backend with the fewest requests is chosen for m" in text) == bool(away)
    assert gateway_as_json(cached, None)["prefix_routing_away"] == []


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('[{},{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.0.0.5","prefixlen":24}]}]', True),
        ("[{},{}]", False),
        ("[]", False),
        ("", False),
        ('[{"addr_info":[{"local":"10.0.0.50"}]}]', False),
        ('[{"addr_info":[{"local":5}]}]', None),
        ("{}", None),
        ("[" * 5000, None),
        ("Object", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_who_has_the_shared_address_is_read_or_unknown(text: str, holds: bool | None) -> None:
    assert gateway_status.has_address(text, "10.0.0.5") is holds


def sharing(*names: str) -> dict[str, HostSettings]:
    shared = SharedAddress(address="10.0.0.5/24", interface="eth0")
    gateway = plan().gateway.model_copy(update={"shared_address": shared})
    return {
        name: HostSettings(
            gateway=GatewaySettings(plan().model_copy(update={"host": name, "gateway": gateway, "sharing": names}))
        )
        for name in names
    }


@pytest.mark.parametrize(
    ("holder", "errors"), [("one", []), ("two", []), ("", ["one: no gateway holds", "two: no gateway holds"])]
)
def test_it_is_said_which_gateway_has_the_shared_address(
    monkeypatch: pytest.MonkeyPatch, holder: str, errors: list[str]
) -> None:
    settings = sharing("one", "two")
    results = {name: HostResult(name, probe=Probe()) for name in settings}
    hosts = [SimpleNamespace(name=name, connected=True) for name in settings]
    run: Any = SimpleNamespace(state=SimpleNamespace(inventory=hosts, pool=Pool(5)), settings=settings, results=results)
    monkeypatch.setattr(gateway_status, "tell", lambda *_: (STAT.replace("DOWN", "UP"), SERVERS, "", ""))
    monkeypatch.setattr(gateway_status, "http_status", lambda *_: "200")

    def ip(host: Any, *words: str) -> Any:
        said = '[{"addr_info":[{"local":"10.0.0.5"}]}]' if host.name == holder else "[{}]"
        return SimpleNamespace(ok=True, stdout=said)

    monkeypatch.setattr(remote, "run", ip)
    found = gateways_of(run)
    assert {one["gateway"]: one["holds_shared_address"] for one in found} == {
        name: name == holder for name in ("one", "two")
    }
    assert [error.message for result in results.values() for error in result.errors] == [
        f"{text} 10.0.0.5" for text in errors
    ]
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(gateway_table(found), soft_wrap=True)
    text = console.export_text()
    for name in ("one", "two"):
        assert f"{name}: {'holds' if name == holder else 'stands by for'} 10.0.0.5" in text


def test_a_gateway_that_says_nothing_or_nonsense() -> None:
    for answers in (None, ("", "", ""), ("# pxname\n,,,", "1\n\n", "notAfter: never")):
        found = seen(answers)
        assert {one["state"] for one in found["backends"]} == {"unknown"}
        assert (found["certificate_days"], found["answers"]) == (None, answers is not None)


@pytest.mark.parametrize(
    ("days", "says"),
    [(None, ""), (15.0, ""), (9.2, "the certificate expires in 9 days"), (-1.0, "certificate has expired")],
)
def test_who_answers_is_shown_in_the_terminal_and_on_the_page(days: float | None, says: str) -> None:
    found = seen() | {"certificate_days": days}
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(gateway_table([found]), soft_wrap=True)
    text, page = console.export_text(), str(gateway_section([found]))
    for shown in (text, page):
        assert says in shown and "drained" in shown and "2h 0m" in shown
        assert ("certificate" in shown) == bool(says)


def test_what_is_wrong_fails_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("well", "poor", "full", "mute", "gone")
    settings = {
        name: HostSettings(gateway=GatewaySettings(plan().model_copy(update={"host": name}))) for name in names
    } | {"box": HostSettings()}
    hosts = [SimpleNamespace(name=name, connected=name != "gone") for name in settings]
    results = {name: HostResult(name, probe=Probe()) for name in settings}
    run: Any = SimpleNamespace(state=SimpleNamespace(inventory=hosts, pool=Pool(5)), settings=settings, results=results)

    def tell(host: Any, *_: str) -> tuple[str, ...]:
        if host.name == "mute":
            raise HostFailed("mute: no output")
        return (STAT if host.name == "poor" else STAT.replace("DOWN", "UP"), SERVERS, "")

    monkeypatch.setattr(gateway_status, "tell", tell)
    asked = []

    def http_status(host: Any, url: str, seconds: int) -> str:
        asked.append((host.name, url, seconds))
        return "000" if host.name in ("full", "mute") else "200"

    monkeypatch.setattr(gateway_status, "http_status", http_status)
    found = gateways_of(run)
    assert [(one["gateway"], one["answers"]) for one in found] == [
        ("well", True),
        ("poor", True),
        ("full", False),
        ("mute", False),
    ]
    assert ("well", "http://127.0.0.1:8080/health", 5) in asked
    errors = {name: [error.message for error in result.errors] for name, result in results.items() if result.errors}
    assert errors == {
        "poor": ["poor: no backend answers for n"],
        "full": ["full: http://127.0.0.1:8080/health: no answer within 5 s, although HAProxy runs"],
        "mute": ["mute: the gateway does not answer"],
    }
