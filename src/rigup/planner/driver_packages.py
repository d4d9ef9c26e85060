"""Package names for a driver plan on a host: those with the driver's version, and others. Pure."""

from __future__ import annotations

import re

from rigup.catalogue.drivers import DEBIAN_ARCHITECTURES, REPOSITORY_ARCHITECTURES, SupportedSystem, driver_facts
from rigup.errors import InputError
from rigup.plan import DriverPackages, DriverPlan, DriverRepository

FABRIC_MANAGER_UNIT = "nvidia-fabricmanager.service"
PERSISTENCE_UNIT = "nvidia-persistenced.service"


def driver_packages(driver: DriverPlan, os: str, architecture: str, kernel: str, nvswitches: int) -> DriverPackages:
    """The packages of a driver on one host.

    os, architecture: as in the probe. kernel: the release that boots next. nvswitches: how many the host has.
    Raises InputError for a system without driver packages.
    """
    facts, distribution = driver_facts(), _distribution(os)
    names = facts.packages
    switched = driver.fabric_manager or nvswitches > 0
    extra = tuple(name.format(kernel=kernel) for name in distribution.extra_modules)
    return DriverPackages(
        pin=names.branch_pin.format(branch=driver.branch),
        kernel=kernel,
        headers=(f"linux-headers-{_flavour(kernel, distribution, architecture)}", f"linux-headers-{kernel}"),
        at_version=(
            *(names.open if driver.flavour == "open" else names.proprietary),
            *distribution.persistence_daemon,
            *(names.fabric_manager if switched else ()),
        ),
        beside=(*names.subnet_manager, *extra) if driver.subnet_manager else (),
        modules=names.subnet_manager_modules if driver.subnet_manager else (),
        units=(PERSISTENCE_UNIT, *((FABRIC_MANAGER_UNIT,) if switched else ())),
    )


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


def _flavour(kernel: str, distribution: SupportedSystem, architecture: str) -> str:
    """The end of this kernel's releases: "amd64", "cloud-amd64", "generic"; the usual one for an unknown kernel."""
    words = {"debian_architecture": DEBIAN_ARCHITECTURES[architecture]}
    flavours = distribution.kernel_flavours.format(**words)
    found = re.fullmatch(rf"[0-9.]+(?:[+~][\w.]+)?(?:-[0-9.]+)?-({flavours})", kernel)
    return found[1] if found else distribution.kernel_flavour.format(**words)


def _distribution(os: str) -> SupportedSystem:
    found = driver_facts().distribution(os)
    if found is None:
        known = ", ".join(distribution.os for distribution in driver_facts().distributions)
        raise InputError(f"{os}: the catalogue has no NVIDIA driver packages for this system", f"choose from: {known}")
    return found
