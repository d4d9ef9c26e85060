"""The ports that the hosts of one service reach of each other."""

from __future__ import annotations

from rigup.node import PeerPort
from rigup.service import EngineName, Service

JOIN_PORTS_ABOVE = 10_000
WATCH_PORTS_APART = 20_000
HIGHEST_PORT = 65_535


def join_port(service: Service) -> int:
    """The port on which the head waits for workers, or on which the workers' RPC servers listen."""
    return service.join_port if service.join_port is not None else service.port + JOIN_PORTS_ABOVE


def watch_port(service: Service) -> int:
    """The port on which the head watches the workers, at a fixed distance from the service's `port`."""
    above = service.port + WATCH_PORTS_APART
    return above if above <= HIGHEST_PORT else service.port - WATCH_PORTS_APART


def peer_ports(engine: EngineName, service: Service, hosts: int) -> tuple[PeerPort, ...]:
    """The ports that the hosts of a service must reach on each other before the engine starts."""
    port, others = join_port(service), tuple(range(1, hosts))
    if service.across_hosts == "ray":  # Ray watches its hosts itself
        return (PeerPort(rank=0, port=port, purpose="ray", callers=others),)
    watch = PeerPort(rank=0, port=watch_port(service), purpose="watch", callers=others)
    if engine == "llama.cpp":
        return (*(PeerPort(rank=rank, port=port, purpose="rpc", callers=(0,)) for rank in others), watch)
    return (PeerPort(rank=0, port=port, purpose="rendezvous", callers=others), watch)
