"""Removal of services that are no longer planned."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.service.removal import removed_service


@deploy("remove")
def removed(services: tuple[str, ...]) -> None:
    """Stop and delete the services; their weights and builds stay until `rigup prune`."""
    for service in services:
        removed_service(name=f"service {service}", service=service)
