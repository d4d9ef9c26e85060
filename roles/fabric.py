"""The NVSwitch fabric, ready before anything starts on its GPUs."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.driver.fabric import ready_fabric
from rigup.operations.driver.state import fabric_problem


@deploy("fabric")
def fabric(probe: Probe, restarted: bool) -> None:
    """Wait until the fabric is ready. restarted: whether the driver or the fabric manager restarts before this step."""
    problem = fabric_problem(probe)
    ready_fabric(name="fabric ready" + (f": {problem}" if problem else ""), probe=probe, restarted=restarted)
