"""The power limit of the GPUs, kept over reboots by a unit of rigup's."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.power_limits import power_limit


@deploy("power")
def power(limit_w: int | None, probe: Probe, driver_changes: bool) -> None:
    """Have every GPU limited to `limit_w` watts; None takes away a limit that rigup has set.

    driver_changes: whether the driver is loaded anew before this, which forgets every limit.
    """
    power_limit(
        name=f"power limit {limit_w} W" if limit_w is not None else "no power limit",
        limit_w=limit_w,
        probe=probe,
        restart=driver_changes,
    )
