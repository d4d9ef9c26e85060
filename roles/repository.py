"""NVIDIA's package repository, trusted by the pinned key."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.nvidia_repository import nvidia_repository
from rigup.planner.driver_packages import DriverRepository


@deploy("repository")
def repository(source: DriverRepository) -> None:
    """Have the repository as a source of its own."""
    nvidia_repository(name=source.address, repository=source)
