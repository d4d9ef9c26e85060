"""From a decision to what runs: argv, environment and the systemd unit."""

from rigup.render.plan_service import plan_across, plan_service
from rigup.render.unit import unit

__all__ = ["plan_across", "plan_service", "unit"]
