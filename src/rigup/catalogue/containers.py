"""Containers as facts: which podman each operating system has, and where NVIDIA's container toolkit comes from.

The figures live in `data/containers/podman.toml`, each with its source.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rigup.catalogue.drivers import Fingerprint
from rigup.units import Frozen

FILE = Path(__file__).parent / "data" / "containers" / "podman.toml"


class Podman(Frozen):
    """The Debian package, its version in each operating system, and the first version that has Quadlet."""

    package: str
    quadlet_since: str
    versions: dict[str, str]
    source: str

    def has_quadlet(self, os: str) -> bool:
        """Whether the operating system's podman makes units of `.container` files; a system unknown here has none."""
        from packaging.version import Version  # a run without images does not pay for it

        there = self.versions.get(os)
        return there is not None and Version(there) >= Version(self.quadlet_since)


class Toolkit(Frozen):
    """NVIDIA's container toolkit: its repository, the key that signs it, and the one package and version of it.

    address: of flat repositories, one folder for each Debian architecture. key_file: below it.
    refresh_unit: rewrites the description of the GPUs; it runs by itself when driver or toolkit change.
    """

    address: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]
    key_file: str
    fingerprint: Fingerprint
    package: str
    version: str
    refresh_unit: str
    sources: dict[str, str]


class ContainerFacts(Frozen):
    """Everything that is known about containers."""

    podman: Podman
    toolkit: Toolkit


@lru_cache(maxsize=1)
def container_facts() -> ContainerFacts:
    """Reads the toolkit's file."""
    return ContainerFacts.model_validate(tomllib.loads(FILE.read_text()))
