"""Where the API of a release listens, as the release's own command line says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup import layout
from rigup.operations.service.health import address_and_model
from rigup.operations.service.history import hosts_of


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint on a host. url: as the host itself reaches it. model: "" if it serves several.

    first: of a service that takes turns, the first of its group, which the unit has its name from.
    """

    host: str
    service: str
    url: str
    model: str
    first: str = ""

    @property
    def unit(self) -> str:
        """To which its port must belong."""
        return layout.unit_name(self.first or self.service)

    @property
    def key_file(self) -> str:
        """Where the host has its API key, if it has one."""
        return layout.api_key_file(self.first or self.service)

    @property
    def port(self) -> int:
        """Its port on the host."""
        return int(self.url.rpartition(":")[2])

    @property
    def where(self) -> str:
        """What messages begin with."""
        return f"{self.host}: {self.service}"


def endpoint_of(host: str, service: str, manifest: Mapping[str, Any], first: str = "") -> Endpoint | None:
    """The endpoint of a release; None on a worker of a node group, which has no API.

    first: of a service that takes turns, whose release it is; None, too, if that release does not have the service.
    """
    group = hosts_of(manifest)
    if group and group[0] != host:
        return None
    address, model = address_and_model(manifest.get("command") or ())
    if first in ("", service):
        return Endpoint(host, service, address, model)
    member = (manifest.get("members") or {}).get(service)
    return member and Endpoint(host, service, address, member["model"], first)
