"""Services that no plan names any more."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.removal import removed_service


@deploy("remove")
def removed(services: tuple[str, ...]) -> None:
    """Have them stopped and gone; weights and builds stay until somebody prunes."""
    for service in services:
        removed_service(name=f"service {service}", service=service)
