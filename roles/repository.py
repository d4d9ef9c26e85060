"""NVIDIA's package repository, verified with the pinned key."""

from __future__ import annotations

from pyinfra.api import deploy

from rigup.operations.apt.nvidia_repository import nvidia_repository
from rigup.plan import DriverRepository


@deploy("repository")
def repository(source: DriverRepository) -> None:
    """Add the repository as an apt source of its own."""
    nvidia_repository(name=source.address, repository=source)
