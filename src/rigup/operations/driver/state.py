"""Compares a driver plan with a host's packages and running kernel, as text. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from rigup.catalogue.drivers import driver_facts
from rigup.facts.probe import Probe
from rigup.operations.apt.commands import upstream
from rigup.plan import Build, DriverPackages, DriverPlan

# Distinguishes the driver's own versions from those of accompanying tools.
_DRIVER_VERSION = re.compile(r"\d{3}\.\d+(\.\d+)?")


def booting_kernel(probe: Probe) -> str:
    """The release of the kernel that the next boot starts: the newest installed one."""
    return probe.kernels[-1] if probe.kernels else probe.kernel


def unpinned_packages(probe: Probe, driver: DriverPlan) -> dict[str, str]:
    """The driver's installed packages whose version differs from the plan, with their version."""
    patterns = driver_facts().held.patterns
    return {
        name: upstream(version)
        for name, version in probe.nvidia.packages.items()
        if any(fnmatch(name, pattern) for pattern in patterns)
        and _DRIVER_VERSION.fullmatch(upstream(version))
        and upstream(version) != driver.version
    }


def package_problem(probe: Probe, driver: DriverPlan, packages: DriverPackages, module: bool) -> str:
    """Text of the problem with the installed driver; "" if it is as planned.

    module: whether the kernel that boots next has NVIDIA's module.
    """
    there = probe.nvidia.packages
    main = packages.at_version[0]
    if probe.nvidia.unconfigured:
        return f"dpkg was interrupted: {', '.join(probe.nvidia.unconfigured)}"
    if others := unpinned_packages(probe, driver):
        return _another(others.get(main) or next(iter(others.values())), driver)
    if main not in there:
        return "not installed" if not probe.nvidia.installed else f"{probe.nvidia.installed} is not from {main}"
    if missing := [name for name in (packages.pin, *packages.at_version, *packages.beside) if name not in there]:
        return f"{', '.join(missing)} missing"
    if packages.kernel not in probe.headers:
        return f"headers of the next kernel {packages.kernel} are missing"
    return "" if module else f"kernel module for the next kernel {packages.kernel} is missing"


def _another(version: str, driver: DriverPlan) -> str:
    """Text for an installed version that differs from the lock, and the options."""
    branch = int(version.partition(".")[0])
    if branch < driver.floor:
        return f"{version} is installed, below {driver.floor}, which this plan needs"
    return f"{version} is installed (to keep it: rigup lock --upgrade driver={version})"


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
