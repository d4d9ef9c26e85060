"""How a unit stops: the requests in flight end first (see programs/drain.py), within the service's `drain_timeout`."""

from __future__ import annotations

from rigup.layout import PROGRAMS, unit_name
from rigup.plan import BoundPlan
from rigup.systemd.quoting import command_line

PROGRAM = "drain.py"
END_SECONDS = 60
"""How long an engine without requests may take to end: as long as before there was anything to wait for."""


def drains(plan: BoundPlan) -> bool:
    """Whether this host has requests to wait for: in a node group, only the head has the API."""
    return plan.rank == 0 and plan.service.drain_timeout > 0


def stop_lines(plan: BoundPlan) -> tuple[str, ...]:
    """The unit's lines around the end of its engine, run as root outside the sandbox, whatever becomes of them."""
    if not drains(plan):
        return ()
    unit = unit_name(plan.service.name)
    program = ("/usr/bin/python3", "-EsS", f"{PROGRAMS}/{PROGRAM}", unit)
    words = (*program, str(plan.service.port), str(plan.service.drain_timeout))
    return (f"ExecStop=-+{command_line(words)}", f"ExecStopPost=-+{command_line(program)}")


def stop_seconds(plan: BoundPlan) -> int:
    """`TimeoutStopSec`: systemd counts it for ExecStop, and again for the engine after its signal.

    The other hosts of a node group wait for the head's requests (see programs/run_together.py).
    """
    return END_SECONDS + plan.service.drain_timeout
