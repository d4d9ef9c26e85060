"""Power limit of the GPUs, set again at each boot by a unit of rigup."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.driver.power_limits import power_limit


@deploy("power")
def power(limit_w: int | None, probe: Probe, driver_changes: bool) -> None:
    """Limit every GPU to `limit_w` watts; None removes a limit that rigup set.

    driver_changes: whether the driver is loaded again before this step, which resets every limit.
    """
    power_limit(
        name=f"power limit {limit_w} W" if limit_w is not None else "no power limit",
        limit_w=limit_w,
        probe=probe,
        restart=driver_changes,
    )
