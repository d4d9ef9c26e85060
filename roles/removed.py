"""What is not planned: services that are no longer in the inventory or are to stay stopped, and an earlier gateway."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.gateway.removal import GATEWAY
from rigup.operations.primitives.removal import removed_part
from rigup.operations.primitives.steps import carried_out


@deploy("remove")
def removed(services: tuple[str, ...]) -> None:
    """Stop and delete the services; their weights and builds stay until `rigup prune`."""
    from rigup.operations.service.stopping import remove_service  # rarely needed

    for service in services:
        carried_out(name=f"service {service}", function=remove_service, arguments=(service,))


@deploy("stop")
def stopped(services: tuple[str, ...], probe: Probe) -> None:
    """Stop the services and keep them stopped, with their releases, until the inventory enables them again."""
    from rigup.operations.service.stopping import stopped_service

    for service in services:
        stopped_service(name=f"stop {service}", service=service, probe=probe)


@deploy("gateway")
def no_gateway() -> None:
    """Stop and remove a gateway that rigup installed earlier."""
    removed_part(name="no gateway", part=GATEWAY)
