"""The files that keep a driver where the lock has it: source, preferences, unattended upgrades, modules. Pure text."""

from __future__ import annotations

from collections.abc import Mapping

from rigup.catalogue.drivers import driver_facts
from rigup.plan import DriverPackages, DriverPlan, DriverRepository

SOURCE = "/etc/apt/sources.list.d/nvidia-cuda.sources"
KEYRING = "/etc/apt/keyrings/rigup-nvidia.gpg"
# The first record that matches a version decides its priority: these must come before NVIDIA's nvidia-driver-pinning-*.
DRIVER_PREFERENCES = "/etc/apt/preferences.d/00-rigup-nvidia-driver"
TOOLKIT_PREFERENCES = "/etc/apt/preferences.d/00-rigup-cuda-toolkit"
UNATTENDED_UPGRADES = "/etc/apt/apt.conf.d/52rigup-nvidia"
BLACKLIST = "/etc/modprobe.d/rigup-nouveau.conf"
MODULES = "/etc/modules-load.d/rigup-nvidia.conf"

# Above 1000 apt goes back to the pinned version, too, and 1000 is what NVIDIA's own branch pin uses.
PIN_PRIORITY = 1001


def source(repository: DriverRepository) -> str:
    """The repository for apt, in deb822, signed by a key of its own."""
    return (
        "# Written by rigup\n"
        "Types: deb\n"
        f"URIs: {repository.address}\n"
        "Suites: ./\n"
        f"Architectures: {repository.architecture}\n"
        f"Signed-By: {KEYRING}\n"
    )


def driver_files(driver: DriverPlan, packages: DriverPackages) -> dict[str, str]:
    """Text by path, of every file that a driver needs beside its packages. "" is a file that must not be there."""
    facts = driver_facts()
    nouveau = "".join(f"blacklist {name}\noptions {name} modeset=0\n" for name in facts.modules.nouveau)
    modules = "".join(f"{name}\n" for name in packages.modules)
    return {
        DRIVER_PREFERENCES: preferences(
            f"NVIDIA's driver stays at {driver.version}, as rigup.lock has it",
            {" ".join(facts.held.patterns): driver.version},
        ),
        UNATTENDED_UPGRADES: _unattended_upgrades(facts.held.upgrades),
        BLACKLIST: f"# Written by rigup: NVIDIA's driver needs the cards that nouveau would take\n{nouveau}",
        MODULES: f"# Written by rigup: the NVLink subnet manager needs these\n{modules}" if modules else "",
    }


def toolkit_files(pins: Mapping[str, str]) -> dict[str, str]:
    """Text by path: the pins of the CUDA toolkit's packages, versions by name."""
    return {TOOLKIT_PREFERENCES: preferences("the CUDA toolkit stays as rigup.lock has it", pins)}


def preferences(why: str, versions: Mapping[str, str]) -> str:
    """apt preferences that hold packages (patterns, separated by spaces) at versions of whatever revision."""
    stanzas = (
        f"Package: {names}\nPin: version {version}-*\nPin-Priority: {PIN_PRIORITY}\n"
        for names, version in versions.items()
    )
    return f"Explanation: {why}\n" + "\n".join(stanzas)


def _unattended_upgrades(patterns: tuple[str, ...]) -> str:
    listed = "".join(f'  "{pattern}";\n' for pattern in patterns)
    return (
        "// Written by rigup: a driver that is upgraded while it is loaded stops every GPU of the machine\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{listed}}};\n"
    )
