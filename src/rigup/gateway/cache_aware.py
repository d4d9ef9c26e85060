"""Routing by prefix: smg chooses a backend, between two passes of HAProxy. Pure.

Clients talk to HAProxy, which checks keys, limits and size, and has smg choose. To smg each backend is an address on
loopback, where HAProxy listens: it passes the request on to that backend, or to another one where that is drained or
away. So smg holds no key, and keeps no promise: without it, HAProxy chooses as it does otherwise.

smg has an API without a key by which backends are added, and behind its addresses HAProxy adds the engines' keys. So
a firewall lets these ports on loopback take connections of root, HAProxy and smg, and of no other user of the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from rigup.artifacts import LockedSmg
from rigup.gateway import responses
from rigup.gateway.paths import CACHE_PROGRAM, PORTS_UNIT, RUNTIME_FOLDER, SMG_FOLDER, SMG_USER, UNIT, USER
from rigup.gateway.servers import SECTION, backend_name, server_name
from rigup.gateway_settings import CACHE_AWARE, Backend, GatewayPlan, Route
from rigup.layout import PROGRAMS
from rigup.plan import Finding
from rigup.systemd.nftables import NFT, replacing
from rigup.systemd.quoting import command_line, unit_file
from rigup.systemd.service import SANDBOX

# What begins as earlier requests did. The rest goes to the backend with the fewest requests.
ENDPOINTS = ("/v1/chat/completions", "/v1/completions")
# The section that has smg choose, its server, and the one where HAProxy chooses while smg is down.
CHOOSING, SMG, DIRECT = "cached-", "smg", "direct"
# What tells whether a backend may get requests: drained by a command, away, or of weight 0.
_STATE = "state-"
# Loopback's network is large enough for an address of each backend: of route 1, backend 2 it is 127.84.1.2.
_NETWORK = "127.84"
MOST = 250
"""Of routes, and of backends of a route: each is a number of an address."""
SECONDS = 3600
"""For which smg lets a request take, as HAProxy does."""
TABLE = "inet rigup_gateway_cache"
GRACE_SECONDS = 120
"""In which a smg that is told to end answers what it has begun."""


def cached_routes(plan: GatewayPlan) -> tuple[Route, ...]:
    """The routes of a gateway for which smg chooses: those with a choice."""
    chosen = plan.gateway.kind == CACHE_AWARE
    return tuple(route for route in plan.routes if chosen and len(route.backends) > 1)


def smg_command(plan: GatewayPlan) -> tuple[str, ...]:
    """smg's options; () where it has no choice. It neither retries nor judges by errors, because HAProxy does."""
    port = plan.gateway.cache_port
    urls = [
        f"http://{_address(number, place)}:{port}"
        for number, route in enumerate(cached_routes(plan), 1)
        for place, _ in enumerate(route.backends, 1)
    ]
    if not urls:
        return ()
    options = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--prometheus-host": "127.0.0.1",
        "--prometheus-port": str(port + 1),
        "--policy": "cache_aware",
        # what it believes to talk to: HAProxy answers as vLLM does, whatever the engine
        "--backend": "vllm",
        "--history-backend": "none",
        "--request-timeout-secs": str(SECONDS),
        "--shutdown-grace-period-secs": str(GRACE_SECONDS),
        "--health-check-interval-secs": "1",
        "--health-failure-threshold": "1",
        "--health-success-threshold": "1",
        "--worker-startup-check-interval": "1",
        "--log-level": "warn",
    }
    switches = (
        "--disable-tokenizer-autoload",
        "--disable-retries",
        "--disable-circuit-breaker",
        "--disable-load-monitoring",
    )
    return (*(word for pair in options.items() for word in pair), *switches, "--worker-urls", *urls)


def choosing_name(route: Route) -> str:
    """The section in which smg chooses for a route."""
    return f"{CHOOSING}{_label(route)}"


def warnings_of(plan: GatewayPlan) -> tuple[Finding, ...]:
    """What a gateway does not keep of its promises with smg."""
    broken = Finding(
        rule="cache-aware-broken-stream",
        message="an answer that breaks off ends with an error event, and then with [DONE], which smg adds",
        hint='let clients look for the error, as OpenAI\'s do; or leave out kind = "cache_aware"',
        source="docs/decisions/0014-smg-chooses-between-two-passes-of-haproxy.md",
    )
    return (broken,) if cached_routes(plan) else ()


def rules(plan: GatewayPlan) -> tuple[str, ...]:
    """Lines of the frontend: what goes to smg."""
    routes = cached_routes(plan)
    if not routes:
        return ()
    return (
        f"acl by-prefix path {' '.join(ENDPOINTS)}",
        *(
            f"use_backend {choosing_name(route)} if by-prefix {{ var(txn.model) -m str {route.model} }}"
            for route in routes
        ),
    )


def pinned(plan: GatewayPlan, route: Route) -> tuple[str, ...]:
    """Lines of a route's section: a request that comes from smg goes where it has chosen, if that is possible."""
    if route not in cached_routes(plan):
        return ()
    return tuple(
        f"use-server {server_name(backend)} if {{ so_name b{place} }} {_usable(route, backend)}"
        for place, backend in enumerate(route.backends, 1)
    )


def sections(plan: GatewayPlan, copies: int) -> Iterator[tuple[str, list[str]]]:
    """The sections beside those of the routes. copies: of requests that each keeps to repeat them."""
    for number, route in enumerate(cached_routes(plan), 1):
        yield f"backend {choosing_name(route)}", _choosing(plan.gateway.cache_port, number, copies)
        yield f"frontend chosen-{_label(route)}", _chosen(plan.gateway.cache_port, number, route)
        for backend in route.backends:
            name = f"{backend_name(route.model)}/{server_name(backend)}"
            weight = min(backend.weight, 1)
            yield f"backend {_state(route, backend)}", [f"server state 127.0.0.1:1 track {name} weight {weight}"]


def _choosing(port: int, number: int, copies: int) -> list[str]:
    return [
        # the next in the list takes what smg did not
        "balance first",
        "option redispatch 1",
        "retries 1",
        # 404: it calls itself ready before it has asked its backends for their models
        "retry-on conn-failure empty-response 404 503",
        f"http-request disable-l7-retry if {{ be_conn gt {copies} }}",
        "http-request del-header authorization",
        "http-request del-header x-api-key",
        # it tells clients its addresses
        "http-response del-header x-smg- -m beg",
        "option httpchk GET /readiness",
        "http-check expect status 200",
        f"server {SMG} 127.0.0.1:{port} check inter 1s fastinter 250ms downinter 500ms fall 1 rise 1",
        f"server {DIRECT} unix@{_socket(number)} no-check",
    ]


def _chosen(port: int, number: int, route: Route) -> list[str]:
    """Where smg finds the backends: one address each. Their log line is the one of the client's request."""
    places = list(enumerate(route.backends, 1))
    version = json.dumps({"version": "0"})
    return [
        *(f"bind {_address(number, place)}:{port} name b{place}" for place, _ in places),
        f"bind unix@{_socket(number)} mode 600",
        "http-request set-log-level silent",
        *(
            f"http-request return status 200 if {{ path /health }} {{ so_name b{place} }} {_usable(route, backend)}"
            for place, backend in places
        ),
        "http-request return status 503 if { path /health }",
        *(
            f"http-request return status 200 content-type application/json string '{text}' if {{ path {path} }}"
            for path, text in (("/version", version), ("/v1/models", responses.model_list([route.model])))
        ),
        "http-request return status 404 unless { method POST }",
        "http-request wait-for-body time 60s",
        f"http-request set-var(txn.model) str({route.model})",
        f"default_backend {backend_name(route.model)}",
    ]


def _usable(route: Route, backend: Backend) -> str:
    return f"{{ nbsrv({_state(route, backend)}) gt 0 }}"


def _state(route: Route, backend: Backend) -> str:
    return f"{_STATE}{_label(route)}-{server_name(backend)}"


def _label(route: Route) -> str:
    return backend_name(route.model).removeprefix(SECTION)


def _address(number: int, place: int) -> str:
    return f"{_NETWORK}.{number}.{place}"


def _socket(number: int) -> str:
    return f"/run/{RUNTIME_FOLDER}/direct-{number}.sock"


def smg_folder(locked: LockedSmg) -> str:
    """Where this release is on a host."""
    return f"{SMG_FOLDER}/{locked.version}"


def smg_unit(plan: GatewayPlan, locked: LockedSmg) -> str:
    """The text of smg's unit. It begins after HAProxy, which it asks for its backends."""
    command = ("/usr/bin/python3", "-I", f"{PROGRAMS}/{CACHE_PROGRAM}", smg_folder(locked), *smg_command(plan))
    # what HAProxy tells it when it starts, so that another name is a restart
    models = "".join(f"# serves {route.model}\n" for route in cached_routes(plan))
    return models + unit_file(
        {
            "Unit": (
                f"Description=rigup gateway: smg {locked.version}",
                f"Requires={PORTS_UNIT}",
                f"After={PORTS_UNIT} {UNIT}",
                "StartLimitIntervalSec=0",
            ),
            "Service": (
                f"User={SMG_USER}",
                f"Group={SMG_USER}",
                f"ExecStart={command_line(command)}",
                "Environment=PYTHONDONTWRITEBYTECODE=1",
                # it answers what it has begun
                f"TimeoutStopSec={GRACE_SECONDS + 10}",
                "Restart=always",
                "RestartSec=1",
                "SyslogIdentifier=rigup-gateway-cache",
                *SANDBOX,
                "PrivateDevices=yes",
                "PrivateUsers=yes",
                "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
                "IPAddressDeny=any",
                "IPAddressAllow=localhost",
            ),
            "Install": ("WantedBy=multi-user.target",),
        }
    )


def ports_unit(plan: GatewayPlan) -> str:
    """The text of the unit that closes the ports to other users. A firewall often begins with "flush ruleset"."""
    port = plan.gateway.cache_port
    refuse = (
        f"ip daddr 127.0.0.0/8 tcp dport {{ {port}, {port + 1} }} tcp flags & (syn | ack) == syn "
        f"meta skuid != {{ root, {USER}, {SMG_USER} }} reject with tcp reset"
    )
    return unit_file(
        {
            "Unit": (
                "Description=rigup gateway: the ports between HAProxy and smg are closed to other users",
                "After=nftables.service",
                f"Before={UNIT}",
            ),
            "Service": (
                "Type=oneshot",
                "RemainAfterExit=yes",
                f"ExecStart={command_line((NFT, replacing(TABLE, refuse, hook='output')))}",
                f"ExecStop=-{command_line((NFT, f'delete table {TABLE}'))}",
            ),
            "Install": (f"WantedBy=multi-user.target {UNIT}",),
        }
    )
