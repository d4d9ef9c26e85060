"""What the hosts of a service open to each other, closed to everybody else where the network is not theirs alone."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.nftables import closed_to_others
from rigup.plan import Plan


@deploy("firewall")
def firewall(plan: Plan) -> None:
    """Have the service's table loaded. The service itself loads it whenever it starts."""
    closed_to_others(name=f"firewall of {plan.service.name}", plan=plan)
