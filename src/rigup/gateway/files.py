"""Every file of a gateway on its host, and its unit: HAProxy without root, with nothing but its own folder. Pure.

Its maps: clients by the hash of their key, what they may use, and the backends' keys. HAProxy reads them when it
starts; later changes reach the running process through its admin socket.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from rigup.gateway.haproxy import MOST_CONNECTIONS, configuration, digest_of
from rigup.gateway.paths import (
    CERTIFICATE_FILE,
    CLIENTS_FILE,
    CONFIGURATION_FILE,
    KEYS_FILE,
    MODELS_FILE,
    RUNTIME_FOLDER,
    USER,
)
from rigup.gateway.responses import model_list
from rigup.gateway_settings import Gateway, GatewayPlan, GatewaySettings
from rigup.systemd.quoting import unit_file
from rigup.systemd.service import SANDBOX
from rigup.units import MIB

EVERY_FILE = (CONFIGURATION_FILE, CLIENTS_FILE, MODELS_FILE, KEYS_FILE, CERTIFICATE_FILE)
PROGRAM = "/usr/sbin/haproxy"
FIRST_FREE_PORT = 1024
# HAProxy allocates its buffers for each request, and glibc would take large ones from the kernel and back each time.
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(256 * MIB),
    "MALLOC_TRIM_THRESHOLD_": str(256 * MIB),
}
# So that a client with a key and many large requests costs the gateway, which comes back, and not the host.
_MEMORY = "MemoryMax=75%"
_CAPABILITIES = ("CapabilityBoundingSet=", "AmbientCapabilities=")


@dataclass(frozen=True)
class GatewayFiles:
    """What is to lie on the host. maps: text by path; the running process can take them over without a reload.

    digest: what the running process calls itself once it has this configuration.
    """

    configuration: str
    unit: str
    digest: str
    maps: dict[str, str] = field(repr=False)
    certificate: str | None = field(default=None, repr=False)

    @property
    def by_path(self) -> dict[str, str]:
        """All but the unit."""
        certificate = {CERTIFICATE_FILE: self.certificate} if self.certificate else {}
        return {CONFIGURATION_FILE: self.configuration, **self.maps, **certificate}


def files_of(settings: GatewaySettings) -> GatewayFiles:
    """The files of a gateway; maps that its configuration does not read are left out."""
    plan = settings.plan
    maps = {CLIENTS_FILE: clients_map(settings), MODELS_FILE: models_map(plan)} if plan.gateway.clients else {}
    if settings.backend_keys:
        maps[KEYS_FILE] = backend_keys_map(settings)
    text = configuration(plan, settings.certificate)
    return GatewayFiles(text, gateway_unit(plan.gateway), digest_of(text), maps, settings.certificate)


def clients_map(settings: GatewaySettings) -> str:
    """HASH {"name": ...}: a line for each client. No key can be told from it."""
    return "".join(
        f"{settings.client_digests[name]} {json.dumps(_client(settings.plan, name))}\n"
        for name in settings.plan.gateway.clients
    )


def _client(plan: GatewayPlan, name: str) -> dict[str, str | int]:
    client = plan.gateway.clients[name]
    found: dict[str, str | int] = {"name": name, "models": ", ".join(allowed(plan, name))}
    if client.requests_per_minute is not None:
        found["requests_per_minute"] = client.requests_per_minute
    if client.concurrency is not None:
        found["concurrency"] = client.concurrency
    return found


def models_map(plan: GatewayPlan) -> str:
    """CLIENT with the list of its models, and CLIENT/MODEL for each of them."""
    lines = []
    for name in plan.gateway.clients:
        models = allowed(plan, name)
        lines += [f"{name} {model_list(models)}", *(f"{name}/{model} yes" for model in models)]
    return "".join(f"{line}\n" for line in lines)


def backend_keys_map(settings: GatewaySettings) -> str:
    """MODEL KEY: a line for each route whose backends take a key."""
    return "".join(f"{model} {key}\n" for model, key in settings.backend_keys.items())


def allowed(plan: GatewayPlan, client: str) -> tuple[str, ...]:
    """The models that a client may use, in the order of the routes."""
    models = plan.gateway.clients[client].models
    return tuple(model for model in plan.models if models is None or model in models)


def needs_restart(earlier: str, unit: str) -> bool:
    """Whether a running gateway takes over its next unit by a restart alone; systemd sets memory meanwhile."""

    def others(text: str) -> list[str]:
        return [line for line in text.strip().splitlines() if line != _MEMORY]

    return others(earlier) != others(unit)


def gateway_unit(gateway: Gateway) -> str:
    """The text of the unit. A reload starts new processes that take over the sockets; old ones finish their streams."""
    low = gateway.port < FIRST_FREE_PORT or gateway.acme is not None
    capabilities = [f"{line}CAP_NET_BIND_SERVICE" if low else line for line in _CAPABILITIES]
    lines = {
        "Unit": (
            "Description=rigup gateway: HAProxy",
            "Wants=network-online.target",
            "After=network-online.target",
            "StartLimitIntervalSec=0",
        ),
        "Service": (
            "Type=notify",
            f"User={USER}",
            f"Group={USER}",
            f"ExecStartPre={PROGRAM} -q -c -f {CONFIGURATION_FILE}",
            f"ExecStart={PROGRAM} -Ws -f {CONFIGURATION_FILE}",
            f"ExecReload={PROGRAM} -q -c -f {CONFIGURATION_FILE}",
            "ExecReload=/bin/kill -USR2 $MAINPID",
            *(f"Environment={name}={value}" for name, value in ENVIRONMENT.items()),
            "KillMode=mixed",
            "KillSignal=SIGUSR1",
            # streams may end before it does
            "TimeoutStopSec=120",
            "Restart=always",
            "RestartSec=1",
            "SuccessExitStatus=143",
            _MEMORY,
            f"LimitNOFILE={2 * MOST_CONNECTIONS + 1000}",
            f"RuntimeDirectory={RUNTIME_FOLDER}",
            "RuntimeDirectoryMode=0750",
            "StandardOutput=journal",
            "StandardError=journal",
            "SyslogIdentifier=rigup-gateway",
            *(line for line in SANDBOX if line not in _CAPABILITIES),
            *capabilities,
            "PrivateDevices=yes",
            *(() if low else ("PrivateUsers=yes",)),
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        ),
        "Install": ("WantedBy=multi-user.target",),
    }
    return unit_file(lines)
