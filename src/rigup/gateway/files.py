"""Every file of a gateway on its host. Pure.

Its maps: clients by the hash of their key, what they may use, and the backends' keys. HAProxy reads them when it
starts; later changes reach the running process through its admin socket.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from rigup.gateway.haproxy import configuration, digest_of
from rigup.gateway.paths import CERTIFICATE_FILE, CLIENTS_FILE, CONFIGURATION_FILE, KEYS_FILE, MODELS_FILE
from rigup.gateway.responses import model_list
from rigup.gateway.unit import gateway_unit
from rigup.gateway_settings import GatewayPlan, GatewaySettings

EVERY_FILE = (CONFIGURATION_FILE, CLIENTS_FILE, MODELS_FILE, KEYS_FILE, CERTIFICATE_FILE)


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
