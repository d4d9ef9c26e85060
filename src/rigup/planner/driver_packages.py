"""Package names for a driver plan on a host: those with the driver's version, and others. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rigup.catalogue.drivers import DEBIAN_ARCHITECTURES, REPOSITORY_ARCHITECTURES, SupportedSystem, driver_facts
from rigup.catalogue.systems import extra_modules, kernel_headers, system_facts
from rigup.errors import InputError
from rigup.plan import DriverPackages, DriverPlan, DriverRepository

FABRIC_MANAGER_UNIT = "nvidia-fabricmanager.service"
PERSISTENCE_UNIT = "nvidia-persistenced.service"
LAST_WITH_SUFFIX = 580
"""The last branch whose packages for Ubuntu have it in their names."""


def driver_packages(
    driver: DriverPlan, os: str, architecture: str, kernel: str, nvswitches: int, kernel_packages: Iterable[str] = ()
) -> DriverPackages:
    """The packages of a driver on one host.

    os, architecture, kernel_packages: as in the probe. kernel: the release that boots next. nvswitches: how many the
    host has. Raises InputError for a system without driver packages.
    """
    facts, distribution, system = driver_facts(), _distribution(os), system_facts().system(os)
    assert system is not None, f"{os} has a repository but no entry in systems.toml"
    names = facts.packages
    switched = driver.fabric_manager or nvswitches > 0
    extra = extra_modules(system, kernel)
    return DriverPackages(
        pin=names.branch_pin.format(branch=driver.branch),
        kernel=kernel,
        headers=kernel_headers(system, architecture, kernel, kernel_packages),
        at_version=(
            *(names.open if driver.flavour == "open" else names.proprietary),
            *distribution.persistence_daemon,
            *(names.fabric_manager if switched else ()),
        ),
        beside=(*names.subnet_manager, *extra) if driver.subnet_manager else (),
        modules=names.subnet_manager_modules if driver.subnet_manager else (),
        units=(PERSISTENCE_UNIT, *((FABRIC_MANAGER_UNIT,) if switched else ())),
    )


def user_space_packages(driver: DriverPlan, os: str) -> dict[str, str]:
    """The driver's packages for a container, with their version: libraries, and no kernel module."""
    suffix = f"-{driver.branch}" if int(driver.branch) <= LAST_WITH_SUFFIX else ""
    return {name.format(suffix=suffix): driver.version for name in _distribution(os).user_space}


def driver_repository(
    os: str, architecture: str, address: str | None = None, fingerprint: str | None = None
) -> DriverRepository:
    """The repository for one host.

    address: a mirror of NVIDIA's repositories, with the same folders. fingerprint: of the mirror's signing key, if it
    is another; the name of the key file is then its last eight digits.
    """
    distribution = _distribution(os)
    base = (address or driver_facts().repository.address).rstrip("/")
    folder = f"{base}/{distribution.folder}/{REPOSITORY_ARCHITECTURES[architecture]}/"
    own = fingerprint is not None and fingerprint != distribution.fingerprint
    key_file = f"{fingerprint[-8:].lower()}.pub" if own and fingerprint else distribution.key_file
    return DriverRepository(
        address=folder,
        key_address=folder + key_file,
        fingerprint=fingerprint or distribution.fingerprint,
        architecture=DEBIAN_ARCHITECTURES[architecture],
    )


def _distribution(os: str) -> SupportedSystem:
    found = driver_facts().distribution(os)
    if found is None:
        known = ", ".join(distribution.os for distribution in driver_facts().distributions)
        raise InputError(f"{os}: the catalogue has no NVIDIA driver packages for this system", f"choose from: {known}")
    return found
