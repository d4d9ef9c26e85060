"""Firewall of a node group on a shared network: only its peers reach the ports that its hosts open to each other."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.multinode.firewall import closed_to_others
from rigup.plan import BoundPlan


@deploy("firewall")
def firewall(plan: BoundPlan) -> None:
    """Load the service's nftables table. The service also loads it at each start."""
    closed_to_others(name=f"firewall of {plan.service.name}", plan=plan)
