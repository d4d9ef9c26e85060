"""What the gateways of a fleet say of their backends: who answers for which model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable
from rigup.facts.network import read_links
from rigup.gateway.cache_aware import SMG, cached_routes, choosing_name
from rigup.gateway.paths import ACME_FILE, CERTIFICATE_FILE, SHARED_UNIT, UNIT
from rigup.gateway.servers import HELD, UP, ServerState, backend_name, read_queues, read_states, server_name, taken_out
from rigup.gateway_settings import Gateway, GatewayPlan, Route
from rigup.host import Host
from rigup.operations.gateway.admin import tell
from rigup.operations.gateway.http_status import http_status
from rigup.operations.primitives import remote
from rigup.operations.service.health import local_address
from rigup.programs.release_metrics import certificate_end
from rigup.run.context import RunContext, ask_quietly

PORT_SECONDS = 5
COMMANDS = ("show stat", "show servers state", f"show ssl cert {CERTIFICATE_FILE}", f"show ssl cert {ACME_FILE}")


def gateways_of(run: RunContext) -> list[dict[str, Any]]:
    """Each gateway of these hosts with its backends, as `rigup status --json` has them. Asks the running ones.

    A gateway that does not answer, or has nobody for a model, fails its host.
    """
    plans: dict[str, GatewayPlan] = {}
    questions: dict[tuple[str, str], Callable[[], Any]] = {}
    for host in run.state.inventory:
        gateway = run.settings[host.name].gateway
        if gateway and host.connected and run.results[host.name].probe is not None:
            plans[host.name] = gateway.plan
            questions[host.name, "states"] = partial(tell, host, *COMMANDS)
            questions[host.name, "port"] = partial(http_status, host, health_url(gateway.plan.gateway), PORT_SECONDS)
            if shared := gateway.plan.gateway.shared_address:
                questions[host.name, "address"] = partial(_holds, host, shared.host)
    answered = ask_quietly(run.state, questions)
    gateways = []
    for name, plan in plans.items():
        answers, result = answered.get((name, "states")), run.results[name]
        port = answered.get((name, "port"))
        gateways.append(gateway_as_json(plan, answers, answered.get((name, "address")), port == "200"))
        if answers is not None and port != "200":
            url, told = health_url(plan.gateway), "no answer" if port in (None, "000") else port
            result.fail(
                "failed",
                HostFailed(
                    f"{name}: {url}: {told} within {PORT_SECONDS} s, although HAProxy runs",
                    f"see who has its connections, on the host: ss -Htn sport = :{plan.gateway.port}",
                ),
            )
        if answers is None:
            result.fail(
                "failed", HostFailed(f"{name}: the gateway does not answer", f"on the host: journalctl -u {UNIT}")
            )
        elif away := models_away(gateways[-1]):
            hint = "repair their services, or run rigup apply, which gives back what a command has drained"
            result.fail("failed", HostFailed(f"{name}: no backend answers for {', '.join(away)}", hint))
    held = {one["gateway"]: one["holds_shared_address"] for one in gateways}
    for name, plan in plans.items():
        if plan.sharing and all(held.get(other) is False for other in plan.sharing):
            address = plan.gateway.shared_address
            message = f"{name}: no gateway holds {address.host if address else ''}"
            run.results[name].fail("failed", HostFailed(message, f"on the gateways: journalctl -u {SHARED_UNIT}"))
    return gateways


def health_url(gateway: Gateway) -> str:
    """What a gateway answers to everybody, as its host itself asks for it."""
    return f"{local_address(gateway.listen, gateway.port, tls=gateway.tls is not None)}/health"


def _holds(host: Host, address: str) -> bool | None:
    """Whether a host has an address on one of its interfaces; None if it does not say."""
    output = remote.run(host, "ip", "-json", "address", "show", "to", address)
    return has_address(output.stdout, address) if output.ok else None


def has_address(text: str, address: str) -> bool | None:
    """Whether `ip -json address` lists an address; None if that is not what it printed."""
    try:
        links = read_links(text) if text.strip() else []
    except Unreadable:
        return None
    return any(one.local == address for link in links for one in link.addr_info)


def gateway_as_json(
    plan: GatewayPlan, answers: Sequence[str] | None, holds: bool | None = None, port: bool = True
) -> dict[str, Any]:
    """A gateway with its backends, in the order of the plan.

    answers: to COMMANDS; None if it gave none. holds: whether it has the shared address now; None if that is unknown.
    port: whether it answers clients.
    """
    stat, servers, *certificates = answers or ("", "")
    states, queues, out = read_states(stat), read_queues(stat), taken_out(servers)
    end = certificate_end(line for text in certificates for line in text.splitlines())
    backends = []
    for route in plan.routes:
        section = backend_name(route.model)
        held = states.get(f"{section}/{HELD}")
        for backend in route.backends:
            name = f"{section}/{server_name(backend)}"
            state = states.get(name)
            words = "up" if state and state.status == UP else "away"
            backends.append(
                {
                    "model": route.model,
                    "host": backend.host,
                    "service": backend.service,
                    "state": "unknown" if state is None else "drained" if name in out else words,
                    "weight": state.weight if state else None,
                    "in_flight": state.in_flight if state else None,
                    "queued": queues.get(section, 0) + (held.in_flight if held else 0) if state else None,
                    "errors": state.errors if state else None,
                    "seconds": state.seconds if state else None,
                }
            )
    return {
        "gateway": plan.host,
        "kind": plan.gateway.kind,
        "answers": answers is not None and port,
        "shared_address": plan.gateway.shared_address.host if plan.gateway.shared_address else None,
        "holds_shared_address": holds,
        "prefix_routing_away": [
            route.model for route in cached_routes(plan) if answers and not _chooses(states, route)
        ],
        "certificate_days": None if end is None else round((end - time.time()) / 86_400, 1),
        "backends": backends,
    }


def _chooses(states: Mapping[str, ServerState], route: Route) -> bool:
    state = states.get(f"{choosing_name(route)}/{SMG}")
    return state is not None and state.status == UP


def models_away(gateway: dict[str, Any]) -> list[str]:
    """The models that nobody answers for. One whose backends were all drained is not told apart."""
    served = {one["model"] for one in gateway["backends"] if one["state"] == "up"}
    return [model for model in dict.fromkeys(one["model"] for one in gateway["backends"]) if model not in served]
