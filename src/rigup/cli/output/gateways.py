"""What gateways offer, as `rigup plan` shows it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from rigup.settings import Backend, Gateway, GatewayPlan, Route


def show_gateways(plans: Sequence[GatewayPlan], console: Console) -> None:
    """Prints each gateway: its address, its clients, and which backends serve which model."""
    for plan in plans:
        console.print()
        console.print(Text.assemble((f"{plan.group} / gateway", "bold"), f"  ({plan.host})"), soft_wrap=True)
        for line in _lines(plan):
            console.print(Text(f"  {line}"), soft_wrap=True)


def _lines(plan: GatewayPlan) -> list[str]:
    gateway = plan.gateway
    held = [f"holds requests for up to {gateway.hold} s while no engine is up"] if gateway.hold else []
    routes = [line for route in plan.routes for line in _route(route)]
    return [f"listens at {_address(gateway)}", f"clients: {_clients(gateway)}", *held, *routes]


def _address(gateway: Gateway) -> str:
    listen = f"[{gateway.listen}]" if ":" in gateway.listen else gateway.listen
    return f"{'https' if gateway.tls else 'http'}://{listen}:{gateway.port}/v1"


def _clients(gateway: Gateway) -> str:
    if not gateway.clients:
        return "everybody on this host, without a key"
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
