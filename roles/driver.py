"""NVIDIA's driver at the locked version: its repository, packages and their hold, kernel module, daemons and fabric."""

from __future__ import annotations

from collections.abc import Callable

from pyinfra import host
from pyinfra.api import deploy

from rigup.facts.probe import Probe
from rigup.operations.apt.nvidia_repository import nvidia_repository
from rigup.operations.apt.packages import pinned_packages
from rigup.operations.driver.loading import loaded_driver
from rigup.operations.driver.packages import KernelModule, driver_packages, remove_driver
from rigup.operations.driver.state import (
    fabric_problem,
    loading_problem,
    package_problem,
    packages_move,
    stuck_packages,
    unpinned_packages,
)
from rigup.operations.primitives.steps import carried_out
from rigup.operations.primitives.text_files import text_files
from rigup.operations.primitives.units import running_units
from rigup.plan import DriverPackages, DriverPlan, DriverRepository
from rigup.planner.driver_packages import FABRIC_MANAGER_UNIT, user_space_packages
from rigup.systemd.driver_files import BLACKLIST, container_files, driver_files

UPDATE_INITRAMFS = ("sh", "-c", "if command -v update-initramfs >/dev/null; then update-initramfs -u -k all; fi")


@deploy("repository")
def repository(source: DriverRepository) -> None:
    """Add NVIDIA's package repository, verified with the pinned key, as an apt source of its own."""
    nvidia_repository(name=source.address, repository=source)


@deploy("driver")
def unfinished_driver(plan: DriverPlan, probe: Probe) -> None:
    """Remove another driver that dpkg could not finish, with the rest of the distribution's.

    apt installs nothing until then.
    """
    stuck = stuck_packages(probe, plan)
    rest = tuple(name for name in unpinned_packages(probe, plan) if name in probe.nvidia.of_distribution)
    name = f"no half-installed driver: {', '.join(stuck)}"
    carried_out(name=name, function=remove_driver, arguments=((*stuck, *rest),))


@deploy("driver")
def driver(
    plan: DriverPlan,
    packages: DriverPackages,
    repository: DriverRepository,
    probe: Probe,
    check: Callable[[Probe], None],
) -> bool:
    """Install, hold and load the driver; start its daemons and wait for the fabric.

    Return whether the driver that runs changes, in the kernel or as the libraries and daemons that go with it; what the
    next kernel needs does not count.

    check: called with a fresh probe after loading; raises if the host does not match the declared rig.
    """
    text_files(
        name=f"driver held at {plan.version}, nouveau off",
        files=driver_files(plan, packages),
        then=((BLACKLIST, UPDATE_INITRAMFS),),
    )
    module = host.get_fact(KernelModule, kernel=packages.kernel)
    problem = package_problem(probe, plan, packages, module)
    others = tuple(unpinned_packages(probe, plan))
    driver_packages(
        name=f"driver {plan.version}" + (f": {problem}" if problem else ""),
        driver=plan,
        packages=packages,
        repository=repository,
        problem=problem,
        unpinned=others,
        foreign=tuple(name for name in others if name in probe.nvidia.of_distribution),
    )
    problem = loading_problem(probe, plan)
    loaded = loaded_driver(
        name=f"load driver {plan.version}" + (f": {problem}; reboots where it must" if problem else ""),
        driver=plan,
        problem=problem,
        check=check,
    )
    changes = bool(loaded.will_change) or packages_move(probe, plan, packages)
    daemons = running_units(name=" and ".join(unit.removesuffix(".service") for unit in packages.units),
                            units=packages.units, restart=changes)  # fmt: skip
    if FABRIC_MANAGER_UNIT in packages.units:
        fabric(probe, restarted=bool(daemons.will_change))
    return changes


@deploy("fabric")
def fabric(probe: Probe, restarted: bool) -> None:
    """Wait until the NVSwitch fabric is ready, before anything starts on its GPUs.

    restarted: whether the driver or the fabric manager restarts before this step.
    """
    from rigup.operations.driver.fabric import ready_fabric  # few hosts have NVSwitches

    problem = fabric_problem(probe)
    ready_fabric(name="fabric ready" + (f": {problem}" if problem else ""), probe=probe, restarted=restarted)


@deploy("driver")
def container_driver(plan: DriverPlan, probe: Probe) -> bool:
    """Install and hold the libraries of the version that the container's host runs. Return whether they change."""
    text_files(name=f"driver held at {plan.version}, without modules", files=container_files(plan))
    packages = user_space_packages(plan, probe.os)
    installed = pinned_packages(name=f"driver {plan.version} without modules", packages=packages, probe=probe)
    return bool(installed.will_change)
