"""Compares a driver plan with a host's packages and running kernel, as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch

from rigup.catalogue.drivers import driver_facts
from rigup.facts.probe import Probe
from rigup.operations.apt.commands import upstream
from rigup.plan import Build, DriverPackages, DriverPlan

# Distinguishes the driver's own versions from those of accompanying tools.
_DRIVER_VERSION = re.compile(r"\d{3}\.\d+(\.\d+)?")
# Ubuntu's modules for one of its kernels have the kernel's version, and the driver's branch in their name.
PREBUILT_MODULES = ("linux-modules-nvidia-", "linux-objects-nvidia-", "linux-signatures-nvidia-")
MODULE_BY_HAND = "install the headers of kernel {kernel}, then on the host: dkms autoinstall -k {kernel}"
"""How somebody whose driver rigup does not manage gets its module for another kernel."""


def booting_kernel(probe: Probe) -> str:
    """The release of the kernel that the next boot starts: the newest installed one."""
    return probe.kernels[-1] if probe.kernels else probe.kernel


def next_boot_problem(probe: Probe) -> str:
    """Why the GPUs that work now would not after a reboot; "" if they would."""
    kernel, library = booting_kernel(probe), probe.nvidia.installed
    module = probe.kernel_modules.get(kernel, "")
    if kernel not in probe.kernels or not probe.nvidia.loaded or module == library:
        return ""
    return f"kernel {kernel} has " + (f"NVIDIA's module {module}, not {library}" if module else "no NVIDIA module")


def unpinned_packages(probe: Probe, driver: DriverPlan) -> dict[str, str]:
    """The driver's installed packages of another version than the plan's or of the distribution, with their version."""
    return _others(probe.nvidia.packages, probe.nvidia.of_distribution, driver)


def stuck_packages(probe: Probe, driver: DriverPlan) -> tuple[str, ...]:
    """The packages of another driver that dpkg has not finished, as where its module does not compile for the kernel.

    apt works again once they are configured, which may never succeed, or removed.
    """
    return tuple(_others(probe.nvidia.unconfigured, probe.nvidia.of_distribution, driver))


def _others(packages: Mapping[str, str], of_distribution: tuple[str, ...], driver: DriverPlan) -> dict[str, str]:
    patterns = driver_facts().held.patterns
    return {
        name: upstream(version)
        for name, version in packages.items()
        if (upstream(version) != driver.version or name in of_distribution)
        and (_DRIVER_VERSION.fullmatch(upstream(version)) or name.startswith(PREBUILT_MODULES))
        and ("nvidia" in name or any(fnmatch(name, pattern) for pattern in patterns))
    }


def package_problem(probe: Probe, driver: DriverPlan, packages: DriverPackages, module: str) -> str:
    """Text of all problems with the installed driver; "" if it is as planned.

    module: the version of NVIDIA's module for the kernel that boots next; "" without one.
    """
    problems = list(_package_problems(probe, driver, packages, module))
    wanted = {*packages.at_version, *packages.beside, *unpinned_packages(probe, driver)}
    if problems and (held := [name for name in probe.held if name in wanted]):
        problems.append(f"ends somebody's hold (apt-mark hold {' '.join(held)})")
    return "; ".join(problems)


def _package_problems(probe: Probe, driver: DriverPlan, packages: DriverPackages, module: str) -> Iterator[str]:
    there = probe.nvidia.packages
    main = packages.at_version[0]
    if probe.nvidia.unconfigured:
        yield f"dpkg was interrupted: {', '.join(sorted(probe.nvidia.unconfigured))}"
    others = unpinned_packages(probe, driver)
    if others and main in there and main not in others:
        moved = [f"{name} {version}" for name, version in others.items()]
        yield f"{', '.join(moved)} installed, not {driver.version}"
    elif others:
        yield _another(probe, others.get(main) or _most_telling(others, probe), driver)
    elif main not in there and not probe.nvidia.unconfigured:
        yield "not installed" if not probe.nvidia.installed else f"{probe.nvidia.installed} is not from {main}"
        return  # so nothing else can be there
    elif missing := [
        name
        for name in (packages.pin, *packages.at_version, *packages.beside)
        if name not in there and name not in probe.nvidia.unconfigured
    ]:
        yield f"{', '.join(missing)} missing"
    if packages.kernel not in probe.headers:
        yield f"headers of the next kernel {packages.kernel} are missing"
    elif module != driver.version and not others:
        state = f"is {module}" if module else "is missing"
        yield f"kernel module for the next kernel {packages.kernel} {state}"


def packages_move(probe: Probe, driver: DriverPlan, packages: DriverPackages) -> bool:
    """Whether the driver's own packages change on disk, and with them the libraries and daemons of the running driver.

    Headers and a module for the next kernel do not count.
    """
    own = (packages.pin, *packages.at_version, *packages.beside)
    missing = any(name not in probe.nvidia.packages for name in own)
    return missing or bool(probe.nvidia.unconfigured or unpinned_packages(probe, driver))


def _most_telling(others: dict[str, str], probe: Probe) -> str:
    """The version to name: of the library, else of any package; of prebuilt modules, the kernel's, as a last resort."""
    versions = sorted(others, key=lambda name: name.startswith(PREBUILT_MODULES))
    return probe.nvidia.installed if probe.nvidia.installed in others.values() else others[versions[0]]


def _another(probe: Probe, version: str, driver: DriverPlan) -> str:
    """Text for an installed version that differs from the lock or is the distribution's, and the options."""
    distribution = probe.os.partition("-")[0].capitalize() if probe.nvidia.of_distribution else ""
    shown = f"{distribution}'s {version}" if distribution else version
    if _DRIVER_VERSION.fullmatch(version) and int(version.partition(".")[0]) < driver.floor:
        return f"{shown} is installed, below {driver.floor}, which this plan needs"
    keep = 'driver = "keep" in group_data' if distribution else f"rigup lock --upgrade driver={version}"
    return f"{shown} is installed (to keep it: {keep})"


def unsuited_build(probe: Probe, service: str, build: Build | None) -> str:
    """Why the build of a service's current release no longer suits the plan's GPUs or CUDA; "" if it does.

    A build that is missing, or does not record what it was made for, is taken to suit.
    """
    name = str(probe.releases.get(service, {}).get("build", ""))
    made, wanted = probe.built_for.get(name), build.made_for if build else None
    if made is None or wanted is None:
        return ""
    compiled = made.compute_capabilities and wanted.compute_capabilities
    if compiled and made.compute_capabilities != wanted.compute_capabilities:
        had, has = (", ".join(found.compute_capabilities) for found in (made, wanted))
        return f"build {name} is for {had}, but the rig has {has}"
    return f"build {name} uses CUDA {made.cuda}, not {wanted.cuda}" if made.cuda != wanted.cuda else ""


def fabric_problem(probe: Probe) -> str:
    """The GPUs for which the NVSwitch fabric is not ready, in one line; "" if none, or without a fabric."""
    unready: dict[str, list[str]] = {}
    for gpu in probe.gpus:
        if gpu.fabric not in ("", "completed"):
            unready.setdefault(gpu.fabric, []).append(str(gpu.index))
    return "; ".join(f"{state} on GPU {', '.join(indices)}" for state, indices in unready.items())


def loading_problem(probe: Probe, driver: DriverPlan) -> str:
    """Text of the problem with the running driver; "" if it is the planned one."""
    loaded = probe.nvidia.loaded
    if probe.nvidia.nouveau:
        return "nouveau drives the GPUs"
    if not loaded:
        return "the kernel runs no driver"
    if loaded != driver.version:
        return f"the kernel runs {loaded}"
    if probe.nvidia.flavour and probe.nvidia.flavour != driver.flavour:
        return f"the kernel runs the {probe.nvidia.flavour} modules, but the GPUs need the {driver.flavour} ones"
    return ""
