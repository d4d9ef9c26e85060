"""The files that keep a driver at the locked version: source, preferences, unattended upgrades, modules. Pure text."""

from __future__ import annotations

from collections.abc import Mapping

from rigup.catalogue.drivers import driver_facts
from rigup.plan import DriverPackages, DriverPlan, DriverRepository

SOURCE = "/etc/apt/sources.list.d/nvidia-cuda.sources"
KEYRING = "/etc/apt/keyrings/rigup-nvidia.gpg"
# The first matching record decides a version's priority: these must sort before NVIDIA's nvidia-driver-pinning-*.
DRIVER_PREFERENCES = "/etc/apt/preferences.d/00-rigup-nvidia-driver"
TOOLKIT_PREFERENCES = "/etc/apt/preferences.d/00-rigup-cuda-toolkit"
UNATTENDED_UPGRADES = "/etc/apt/apt.conf.d/52rigup-nvidia"
BLACKLIST = "/etc/modprobe.d/rigup-nouveau.conf"
MODULES = "/etc/modules-load.d/rigup-nvidia.conf"

# Above 1000, apt also downgrades to the pinned version; NVIDIA's own branch pin uses 1000.
PIN_PRIORITY = 1001


def source(repository: DriverRepository, suite: str = "./", keyring: str = KEYRING) -> str:
    """The repository for apt in deb822 format, with its own signing key. suite: its one folder, with a slash."""
    return (
        "# Written by rigup\n"
        "Types: deb\n"
        f"URIs: {repository.address}\n"
        f"Suites: {suite}\n"
        f"Architectures: {repository.architecture}\n"
        f"Signed-By: {keyring}\n"
    )


def driver_files(driver: DriverPlan, packages: DriverPackages) -> dict[str, str]:
    """Maps path to text, for every file that a driver needs besides its packages. "": the file must not exist."""
    blocked = driver_facts().modules.nouveau
    nouveau = "".join(f"blacklist {name}\noptions {name} modeset=0\n" for name in blocked)
    modules = "".join(f"{name}\n" for name in packages.modules)
    return {
        DRIVER_PREFERENCES: _held(driver),
        UNATTENDED_UPGRADES: _unattended_upgrades(),
        BLACKLIST: f"# Written by rigup: keeps nouveau off the cards, which NVIDIA's driver needs\n{nouveau}",
        MODULES: f"# Written by rigup: the NVLink subnet manager needs these\n{modules}" if modules else "",
    }


def container_files(driver: DriverPlan) -> dict[str, str]:
    """Maps path to text, for a container, which uses the modules of its host: none may come with a package."""
    never = f"Package: {' '.join(driver_facts().packages.modules)}\nPin: version *\nPin-Priority: -1\n"
    return {
        DRIVER_PREFERENCES: f"Explanation: a container uses the kernel modules of its host\n{never}\n{_held(driver)}",
        UNATTENDED_UPGRADES: _unattended_upgrades(),
    }


def toolkit_files(pins: Mapping[str, str]) -> dict[str, str]:
    """Maps path to text: the pins of the CUDA toolkit's packages. pins: package to version."""
    return {TOOLKIT_PREFERENCES: preferences("rigup.lock pins the CUDA toolkit", pins)}


def preferences(why: str, versions: Mapping[str, str]) -> str:
    """apt preferences that hold packages (patterns, separated by spaces) at versions, with any package revision."""
    stanzas = (
        f"Package: {names}\nPin: version {version}-*\nPin-Priority: {PIN_PRIORITY}\n"
        for names, version in versions.items()
    )
    return f"Explanation: {why}\n" + "\n".join(stanzas)


def _held(driver: DriverPlan) -> str:
    patterns = " ".join(driver_facts().held.patterns)
    return preferences(f"rigup.lock pins NVIDIA's driver to {driver.version}", {patterns: driver.version})


def _unattended_upgrades() -> str:
    listed = "".join(f'  "{pattern}";\n' for pattern in driver_facts().held.upgrades)
    return (
        "// Written by rigup: upgrading a loaded driver stops every GPU of the machine\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{listed}}};\n"
    )
