"""How a unit has its engine run together with those of the service's other hosts: see programs/run_together.py."""

from __future__ import annotations

from rigup.layout import PROGRAMS
from rigup.node import PeerPort, address_of
from rigup.plan import BoundPlan

PROGRAM = "run_together.py"


def watch_of(plan: BoundPlan) -> PeerPort | None:
    """The port at which the head hears whether the others are there; None where nothing watches over the hosts so."""
    return next((port for port in plan.peer_ports if port.purpose == "watch"), None)


def watched(plan: BoundPlan, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words behind the program that starts and ends them with the other hosts' engines; else unchanged.

    A head whose engine connects to the others' starts it once they listen.
    """
    watch = watch_of(plan)
    if watch is None:
        return words
    listened = [port for port in plan.peer_ports if port.purpose == "rpc" and plan.rank in port.callers]
    addresses = [node.address or address_of(rank) for rank, node in enumerate(plan.nodes)]
    places = [_place(addresses[port.rank], port.port) for port in listened]
    program = ("/usr/bin/python3", "-IS", f"{PROGRAMS}/{PROGRAM}")
    return (*program, str(plan.rank), ",".join(addresses), str(watch.port), *places, "--", *words)


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if address.count(":") > 1 else f"{address}:{port}"
