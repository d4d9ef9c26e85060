"""Facts about NVIDIA's driver: its repositories, signing keys and package names.

The figures live in `data/drivers/nvidia.toml`, each with its source.
"""

from functools import cache
from typing import Annotated

from pydantic import Field

from rigup.catalogue.data_files import toolkit_facts
from rigup.units import Frozen

DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
REPOSITORY_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}

Fingerprint = Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]


class NvidiaRepository(Frozen):
    """NVIDIA's repositories: below `address`, one folder for each distribution, and in it one for each architecture."""

    address: str
    sources: dict[str, str]


class SupportedSystem(Frozen):
    """What NVIDIA's repository has for one operating system.

    fingerprint: of the key that signs its repository. first_branch, first_toolkit: the oldest that the repository has,
    where it lacks what others have. user_space: packages for a container, which has no modules of its own.
    """

    os: str
    folder: str
    key_file: str
    fingerprint: Fingerprint
    persistence_daemon: tuple[str, ...] = ()
    user_space: tuple[str, ...]
    first_branch: int = 0
    first_toolkit: str = ""
    source: str


class Packages(Frozen):
    """Package names; all except `branch_pin` and `subnet_manager` have the driver's version.

    modules: patterns of those that bring kernel modules.
    """

    open: tuple[str, ...]
    proprietary: tuple[str, ...]
    branch_pin: str
    fabric_manager: tuple[str, ...]
    subnet_manager: tuple[str, ...]
    subnet_manager_modules: tuple[str, ...]
    modules: tuple[str, ...]
    sources: dict[str, str]


class HeldPackages(Frozen):
    """Patterns of packages to hold at the locked version, for apt's preferences and for unattended-upgrades."""

    patterns: tuple[str, ...]
    upgrades: tuple[str, ...]
    source: str


class Modules(Frozen):
    """Kernel modules: the first compute capability that the open ones support, and the modules that conflict."""

    open_from: str
    nouveau: tuple[str, ...]
    source: str


class DriverFacts(Frozen):
    """All facts about NVIDIA's driver and its packages."""

    repository: NvidiaRepository
    distributions: tuple[SupportedSystem, ...]
    packages: Packages
    held: HeldPackages
    modules: Modules

    def distribution(self, os: str) -> SupportedSystem | None:
        """Facts about an operating system, by its name in `rig.os` ("debian-12")."""
        return next((known for known in self.distributions if known.os == os), None)


@cache
def driver_facts() -> DriverFacts:
    """Reads the toolkit's file."""
    return toolkit_facts("drivers/nvidia.toml", DriverFacts)
