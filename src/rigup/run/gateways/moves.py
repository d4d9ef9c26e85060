"""Changes behind a gateway that cannot roll: a service has one port and one key at all of its hosts, for a gateway."""

from __future__ import annotations

from rigup.errors import InputError
from rigup.gateway.servers import backend_name, ports_of, server_name
from rigup.gateway_settings import Backend, GatewayPlan
from rigup.run.context import RunContext
from rigup.run.gateways.drains import GatewayDrains

KEY_STEP = "API key of "
_AT_ONCE = "run rigup apply without --rolling; or add the service under another name, and remove this one afterwards"


def check_moves(context: RunContext, drains: GatewayDrains) -> None:
    """Raises InputError if this apply changes the port or the key of a service that a gateway sends requests to.

    The gateway would be told first, and no host that is still to change could be reached; or last, and none that has.
    Only a gateway that runs is asked.
    """
    for host, answer in drains.server_states().items():
        gateway, running = context.settings[host].gateway, ports_of(answer)
        if gateway:
            _check_ports(host, gateway.plan, running)
            _check_keys(host, gateway.plan, running, context)


def _check_ports(host: str, plan: GatewayPlan, running: dict[str, int]) -> None:
    for route in plan.routes:
        for backend in route.backends:
            port = running.get(f"{backend_name(route.model)}/{server_name(backend)}", backend.port)
            if port != backend.port:
                raise _refusal(backend, f"its port changes from {port} to {backend.port}", host)


def _check_keys(host: str, plan: GatewayPlan, running: dict[str, int], context: RunContext) -> None:
    for route in plan.routes:
        for backend in route.backends:
            known = f"{backend_name(route.model)}/{server_name(backend)}" in running
            result = context.results.get(backend.host)
            steps = [change.step for change in result.changes] if result else []
            if known and backend.wants_key and f"{KEY_STEP}{backend.service}" in steps:
                raise _refusal(backend, "its API key changes", host)


def _refusal(backend: Backend, what: str, gateway: str) -> InputError:
    where = f"{backend.host}: {backend.service}"
    return InputError(f"{where}: {what}, which cannot be rolled out behind the gateway {gateway}", _AT_ONCE)
