"""Facts about containers: each operating system's podman, and the repository of NVIDIA's container toolkit.

The figures live in `data/containers/podman.toml`, each with its source.
"""

from functools import cache
from typing import Annotated

from pydantic import Field

from rigup.catalogue.data_files import toolkit_facts
from rigup.catalogue.drivers import Fingerprint
from rigup.units import Frozen


class Podman(Frozen):
    """The Debian package, its version in each operating system, and the first version that has Quadlet."""

    package: str
    quadlet_since: str
    versions: dict[str, str]
    source: str

    def has_quadlet(self, os: str) -> bool:
        """Whether the system's podman generates units from `.container` files; False for an unknown system."""
        from packaging.version import Version  # imported only by runs with images

        there = self.versions.get(os)
        return there is not None and Version(there) >= Version(self.quadlet_since)


class Toolkit(Frozen):
    """NVIDIA's container toolkit: its repository, its signing key, its package and the version that rigup installs.

    address: of flat repositories, with one folder for each Debian architecture. key_file: path below the address.
    refresh_unit: updates the description of the GPUs; it also runs by itself when the driver or the toolkit changes.
    """

    address: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]
    key_file: str
    fingerprint: Fingerprint
    package: str
    version: str
    refresh_unit: str
    sources: dict[str, str]


class ContainerFacts(Frozen):
    """All facts about containers."""

    podman: Podman
    toolkit: Toolkit


@cache
def container_facts() -> ContainerFacts:
    """Reads the toolkit's file."""
    return toolkit_facts("containers/podman.toml", ContainerFacts)
