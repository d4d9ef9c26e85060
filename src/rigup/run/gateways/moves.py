"""Changes behind a gateway that cannot roll: a service has one port and one key at all of its hosts, for a gateway."""

from __future__ import annotations

from rigup.errors import InputError
from rigup.gateway.servers import backend_name, ports_of, server_name
from rigup.gateway_settings import Backend
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
        for route in gateway.plan.routes if gateway else ():
            for backend in route.backends:
                port = running.get(f"{backend_name(route.model)}/{server_name(backend)}")
                if port is not None and (what := _moved(context, backend, port)):
                    where = f"{backend.host}: {backend.service}"
                    message = f"{where}: {what}, which cannot be rolled out behind the gateway {host}"
                    raise InputError(message, _AT_ONCE)


def _moved(context: RunContext, backend: Backend, port: int) -> str:
    """What changes of a backend that cannot roll, "" for nothing. port: at which the gateway reaches it now."""
    if port != backend.port:
        return f"its port changes from {port} to {backend.port}"
    result = context.results.get(backend.host)
    steps = [change.step for change in result.changes] if result else []
    return "its API key changes" if backend.wants_key and f"{KEY_STEP}{backend.service}" in steps else ""
