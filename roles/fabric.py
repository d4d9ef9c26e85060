"""The fabric of NVSwitches, ready before anything is started on its GPUs."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.driver_fabric import ready_fabric
from rigup.operations.driver_state import fabric_problem


@deploy("fabric")
def fabric(probe: Probe, restarted: bool) -> None:
    """Have it ready. restarted: whether the driver or the fabric manager is started anew before this."""
    problem = fabric_problem(probe)
    ready_fabric(name="fabric ready" + (f": {problem}" if problem else ""), probe=probe, restarted=restarted)
