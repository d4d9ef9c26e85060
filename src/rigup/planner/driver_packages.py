"""From a driver plan and what a host is to package names: which at the driver's version, which beside it. Pure."""

from __future__ import annotations

import re

from rigup.catalogue.drivers import DEBIAN_ARCHITECTURES, REPOSITORY_ARCHITECTURES, Distribution, driver_facts
from rigup.errors import InputError
from rigup.plan import DriverPlan
from rigup.units import Frozen

FABRIC_MANAGER_UNIT = "nvidia-fabricmanager.service"
PERSISTENCE_UNIT = "nvidia-persistenced.service"


class DriverPackages(Frozen):
    """What one host gets.

    pin: installed first, so that nothing of another branch comes with the rest. headers: of `kernel`, and of those to
    come. at_version: at exactly the driver's version. beside: of whatever version apt has. modules: kernel modules to
    load at boot. units: that must run.
    """

    pin: str
    kernel: str
    headers: tuple[str, ...]
    at_version: tuple[str, ...]
    beside: tuple[str, ...]
    modules: tuple[str, ...]
    units: tuple[str, ...]


class DriverRepository(Frozen):
    """Where the packages of one host come from, and the key that signs them. `address` ends with a slash."""

    address: str
    key_address: str
    fingerprint: str
    architecture: str


def driver_packages(driver: DriverPlan, os: str, architecture: str, kernel: str, nvswitches: int) -> DriverPackages:
    """The packages of a driver on one host.

    os, architecture: as the probe has them. kernel: the release that will boot. nvswitches: how many the host shows.
    Raises InputError for a system that the driver is not packaged for.
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

    address: what stands in for NVIDIA's repositories (a mirror); the same folders lie below it. fingerprint: of the key
    that signs it, where that is another; its file is then named by its last eight digits.
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


def _flavour(kernel: str, distribution: Distribution, architecture: str) -> str:
    """What releases of this kernel end in: "amd64", "cloud-amd64", "generic"; the usual one for a kernel of others."""
    words = {"debian_architecture": DEBIAN_ARCHITECTURES[architecture]}
    flavours = distribution.kernel_flavours.format(**words)
    found = re.fullmatch(rf"[0-9.]+(?:[+~][\w.]+)?(?:-[0-9.]+)?-({flavours})", kernel)
    return found[1] if found else distribution.kernel_flavour.format(**words)


def _distribution(os: str) -> Distribution:
    found = driver_facts().distribution(os)
    if found is None:
        known = ", ".join(distribution.os for distribution in driver_facts().distributions)
        raise InputError(f"{os}: NVIDIA's driver is not packaged for it here", f"known: {known}")
    return found
