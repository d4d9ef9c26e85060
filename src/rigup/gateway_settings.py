"""What an inventory says of a gateway, and what the gateway then does on one host.

`gateway/inventory.py` reads it from a host's data.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from rigup.artifacts import LockedSmg
from rigup.units import Frozen, Port

_Limit = Annotated[int, Field(ge=1, le=1_000_000)]
MOST_CLIENTS = 7_800
"""Connections of clients that a gateway takes at once. A few more are for metrics and ACME."""


LETS_ENCRYPT = "https://acme-v02.api.letsencrypt.org/directory"
"""Source: https://letsencrypt.org/docs/acme-protocol-updates/"""


class Acme(Frozen):
    """`gateway.tls.acme`: a certificate that the gateway obtains and renews (RFC 8555).

    domains: its names, which lead to the gateway. email: of the account, "" for none. directory: of the server.
    """

    domains: tuple[str, ...]
    email: str = ""
    directory: str = LETS_ENCRYPT


class Certificate(Frozen):
    """`gateway.tls`: files of the user's, in PEM: the certificate with its chain, and its private key; or `acme`."""

    certificate_file: str = ""
    key_file: str = ""
    acme: Acme | None = None


class GatewayClient(Frozen):
    """Who may use a gateway. models: the only names that it may ask for; None for all. Limits: None for none."""

    key_file: str
    requests_per_minute: _Limit | None = None
    concurrency: _Limit | None = None
    models: tuple[str, ...] | None = None


class SharedAddress(Frozen):
    """`gateway.shared_address`: an address that one of several gateways has.

    address: with the length of its network's prefix, "10.0.0.5/24". interface: of the gateways, where it is held. id:
    of the virtual router, the same for all that share the address and unique on its network (RFC 9568, 5.2.3).
    """

    address: str
    interface: str
    id: Annotated[int, Field(ge=1, le=255)] = 51

    @property
    def host(self) -> str:
        """The address alone."""
        return self.address.partition("/")[0]


LEAST_CONNECTIONS, CACHE_AWARE = "least_connections", "cache_aware"
"""How a gateway chooses a backend: that with the fewest requests, or that which has seen the beginning of a prompt."""


class Gateway(Frozen):
    """`gateway` in group_data: one address for services of the fleet.

    kind: how it chooses a backend. services: those that it offers, each "GROUP" or "GROUP/SERVICE"; None for all.
    weights: by the same names; 1 where nothing is said, and 0 takes no new requests. hold: seconds for which a request
    waits while no engine can take it. body_limit_mib: the largest request. connections_per_address: that clients may
    have from one address, or one /64 of IPv6. metrics_listen, metrics_port: of HAProxy's exporter, which asks for no
    key. cache_port: that and the next one are smg's, on loopback.
    """

    kind: Literal["least_connections", "cache_aware"] = "least_connections"
    listen: str = "127.0.0.1"
    port: Port = 8080
    tls: Certificate | None = None
    clients: dict[str, GatewayClient] = {}
    services: tuple[str, ...] | None = None
    weights: dict[str, Annotated[int, Field(ge=0, le=256)]] = {}
    hold: Annotated[int, Field(ge=0, le=3600)] = 0
    body_limit_mib: Annotated[int, Field(ge=1, le=64)] = 2
    connections_per_address: Annotated[int, Field(ge=1, le=MOST_CLIENTS)] = 3_500
    metrics_listen: str = "127.0.0.1"
    metrics_port: Port = 8405
    cache_port: Annotated[int, Field(ge=1, le=65534)] = 8406
    shared_address: SharedAddress | None = None

    @property
    def acme(self) -> Acme | None:
        """How it obtains its certificate itself, if it does."""
        return self.tls.acme if self.tls else None


class Backend(Frozen):
    """A service on a host, behind a gateway. A service over several hosts is one: its head.

    address: where the gateway reaches it. engine: with version and quantisation, for people. wants_key: whether
    requests to it need the route's key.
    """

    host: str
    group: str
    service: str
    address: str
    port: Port
    health_path: str
    weight: int
    engine: str
    wants_key: bool


class Route(Frozen):
    """A model's name, and the backends that serve it. key_file: of the key that they all take; None for none."""

    model: str
    backends: tuple[Backend, ...]
    key_file: str | None = None


class GatewayPlan(Frozen):
    """What a gateway does on one host. Holds no secret. routes: in the order of the inventory.

    sharing: the gateways that may hold its shared address, in the order of the inventory; () without one.
    unicast: their addresses, in that order, at which they speak to each other; () for multicast.
    """

    host: str
    group: str
    gateway: Gateway
    routes: tuple[Route, ...]
    sharing: tuple[str, ...] = ()
    unicast: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """The names that clients may ask for."""
        return tuple(route.model for route in self.routes)


@dataclass(frozen=True)
class GatewaySettings:
    """A gateway with its secrets.

    client_digests: sha256 of each client's key, by client. backend_keys: by model. certificate: chain and key, in PEM.
    smg: as the lock has it, if the gateway routes by prefix.
    """

    plan: GatewayPlan
    client_digests: dict[str, str] = field(default_factory=dict, repr=False)
    backend_keys: dict[str, str] = field(default_factory=dict, repr=False)
    certificate: str | None = field(default=None, repr=False)
    smg: LockedSmg | None = None
