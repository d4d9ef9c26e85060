"""What gateways offer, as `rigup plan` shows it, and who answers, as `rigup status` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from rigup.cli.output.console import show_findings
from rigup.cli.output.table import Column, Table
from rigup.gateway.cache_aware import cached_routes, warnings_of
from rigup.gateway_settings import CACHE_AWARE, Backend, Gateway, GatewayPlan, Route
from rigup.units import uptime_text

COLUMNS = (
    Column("gateway", rank=4, narrowest=12),
    Column("model", narrowest=12, middle=True),
    Column("host", narrowest=12),
    Column("service", rank=3, narrowest=8),
    Column("state"),
    Column("for", rank=2),
    Column("weight", rank=1, right=True),
    Column("in flight", right=True),
    Column("queue", right=True),
    Column("errors", right=True),
)
SOON_DAYS = 14
# Of smg 1.13.0 with two backends; measured in docs/decisions/0014.
SMG_MIB = 60


def show_gateways(plans: Sequence[GatewayPlan], console: Console) -> None:
    """Prints each gateway: its address, its clients, and which backends serve which model."""
    for plan in plans:
        console.print()
        console.print(Text.assemble((f"{plan.group} / gateway", "bold"), f"  ({plan.host})"), soft_wrap=True)
        for line in _lines(plan):
            console.print(Text(f"  {line}"), soft_wrap=True)
        show_findings("warning", warnings_of(plan), console)


def _lines(plan: GatewayPlan) -> list[str]:
    gateway = plan.gateway
    held = [f"holds requests for up to {gateway.hold} s while no engine is up"] if gateway.hold else []
    routes = [line for route in plan.routes for line in _route(route)]
    prefix = _by_prefix(plan) if gateway.kind == CACHE_AWARE else []
    address, hosts = gateway.shared_address, ", ".join(plan.sharing)
    how = "unicast" if plan.unicast else "multicast"
    shared = [f"one of these holds {address.host}, by {how}: {hosts}"] if address else []
    return [f"listens at {_address(gateway)}", *shared, f"clients: {_clients(gateway)}", *held, *prefix, *routes]


def _by_prefix(plan: GatewayPlan) -> list[str]:
    models = ", ".join(route.model for route in cached_routes(plan))
    if not models:
        return ["cache-aware: no model has several backends to choose from"]
    return [
        f"cache-aware: smg sends chats that begin alike to the same backend of {models}",
        f"  costs about {SMG_MIB} MiB here; weights above 0 are used only while smg is down",
    ]


def _address(gateway: Gateway) -> str:
    listen = gateway.shared_address.host if gateway.shared_address else gateway.listen
    listen = f"[{listen}]" if ":" in listen else listen
    return f"{'https' if gateway.tls else 'http'}://{listen}:{gateway.port}/v1"


def _clients(gateway: Gateway) -> str:
    if not gateway.clients:
        return "anyone on this host, without a key"
    words = []
    for name, client in gateway.clients.items():
        limits = [
            *([f"{client.requests_per_minute}/min"] if client.requests_per_minute else ()),
            *([f"{client.concurrency} at once"] if client.concurrency else ()),
            *([f"only {', '.join(client.models)}"] if client.models else ()),
        ]
        words.append(f"{name} ({', '.join(limits)})" if limits else name)
    return ", ".join(words)


def _route(route: Route) -> list[str]:
    return [route.model, *(f"  {_backend(backend)}" for backend in route.backends)]


def _backend(backend: Backend) -> str:
    address = f"[{backend.address}]" if ":" in backend.address else backend.address
    return (
        f"{backend.group}/{backend.service} on {backend.host} ({address}:{backend.port}), {backend.engine}, "
        f"weight {backend.weight}"
    )


def gateway_table(gateways: Sequence[dict[str, Any]]) -> RenderableType:
    """A row per backend, as `gateway_as_json` describes it; red where it gets no requests although it may."""
    table = Table(COLUMNS)
    for gateway in gateways:
        for cells in gateway_rows(gateway):
            style = {"up": "", "drained": "yellow"}.get(cells[4], "red")
            table.add(*cells, style=style)
    notes = [(one["gateway"], text) for one in gateways for text in notes_of(one)]
    return Group(table, *(Text(f"{name}: {text}") for name, text in notes))


def gateway_rows(gateway: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The cells of COLUMNS for each backend."""
    for one in gateway["backends"]:
        numbers = (one[key] for key in ("weight", "in_flight", "queued", "errors"))
        words = gateway["gateway"], one["model"], one["host"], one["service"], one["state"]
        yield (
            *words,
            uptime_text(one["seconds"]) or "-",
            *("-" if number is None else str(number) for number in numbers),
        )


def notes_of(gateway: dict[str, Any]) -> list[str]:
    """What is to be said of a gateway beside its backends."""
    models = ", ".join(gateway["prefix_routing_away"])
    away = f"smg is down, so the backend with the fewest requests is chosen for {models}" if models else ""
    address, holds = gateway["shared_address"], gateway["holds_shared_address"]
    held = "" if holds is None else f"{'holds' if holds else 'stands by for'} {address}"
    return [text for text in (held, certificate_text(gateway), away) if text]


def certificate_text(gateway: dict[str, Any]) -> str:
    """That the certificate has expired, or ends soon; "" otherwise."""
    days = gateway["certificate_days"]
    if days is None or days > SOON_DAYS:
        return ""
    return f"the certificate expires in {days:.0f} days" if days > 0 else "the certificate has expired"
