"""Makes a unit's engine start and stop with those of the service's other hosts: see programs/run_together.py."""

from __future__ import annotations

from rigup.layout import PROGRAMS
from rigup.node import PeerPort
from rigup.plan import BoundPlan
from rigup.units import with_port

PROGRAM = "run_together.py"


def watch_of(plan: BoundPlan) -> PeerPort | None:
    """The port on which the head watches the workers; None for a service without such a watch."""
    return next((port for port in plan.peer_ports if port.purpose == "watch"), None)


def watched(plan: BoundPlan, words: tuple[str, ...]) -> tuple[str, ...]:
    """The command behind the program that starts and stops it with the other hosts' engines; unchanged without a watch.

    If the head's engine connects to the workers' engines, the program waits until they listen.
    """
    watch = watch_of(plan)
    if watch is None:
        return words
    listened = [port for port in plan.peer_ports if port.purpose == "rpc" and plan.rank in port.callers]
    places = [with_port(plan.addresses[port.rank], port.port) for port in listened]
    program = ("/usr/bin/python3", "-EsS", f"{PROGRAMS}/{PROGRAM}")
    service = plan.service
    drain = (f"drain={service.port}:{service.drain_timeout}",) if service.drain_timeout else ()
    return (*program, str(plan.rank), ",".join(plan.addresses), str(watch.port), *drain, *places, "--", *words)
