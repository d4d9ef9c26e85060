"""A node group: the program that runs Ray on its hosts, and the firewall of the ports that they open to each other.

Ray itself is part of the build.
"""

from __future__ import annotations

from pathlib import Path

from pyinfra.api import deploy

from rigup.operations.multinode.firewall import closed_to_others
from rigup.operations.primitives import root_files
from rigup.plan import BoundPlan
from rigup.programs import program_file
from rigup.systemd.ray import PROGRAM


@deploy("ray")
def ray() -> None:
    """Install the program with which a unit joins its host to the Ray cluster."""
    source = program_file(Path(PROGRAM).name)
    root_files.programs(name="Ray program", folder=str(Path(PROGRAM).parent), sources=(source,))


@deploy("firewall")
def firewall(plan: BoundPlan) -> None:
    """Load the service's nftables table, so that only peers reach its ports. It also loads it at each start."""
    closed_to_others(name=f"firewall of {plan.service.name}", plan=plan)
