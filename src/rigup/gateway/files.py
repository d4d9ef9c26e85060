"""Every file of a gateway on its host. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from rigup.gateway.haproxy import configuration, digest_of
from rigup.gateway.maps import backend_keys_map, clients_map, models_map
from rigup.gateway.paths import CERTIFICATE_FILE, CLIENTS_FILE, CONFIGURATION_FILE, KEYS_FILE, MODELS_FILE
from rigup.gateway.unit import gateway_unit
from rigup.gateway_settings import GatewaySettings

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
