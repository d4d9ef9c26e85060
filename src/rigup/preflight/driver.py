"""Checks whether the driver on a host fits the plan's build, and whether rigup can replace it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.catalogue.driver_versions import nvidia_versions
from rigup.facts.probe import Probe
from rigup.operations.apt.commands import upstream
from rigup.operations.driver.state import MODULE_BY_HAND, booting_kernel, next_boot_problem
from rigup.plan import DriverPlan, Finding, Plan
from rigup.planner.assembly import toolkit_of
from rigup.planner.driver import repository_refusals
from rigup.preflight.starting import mismatch_finding

_BACK = "or reinstall the driver that this host had"
_KEEP = 'driver = "keep" in group_data'


def managed_driver(plan: Plan, probe: Probe) -> DriverPlan | None:
    """The driver that rigup installs on this host; None if the host's own stays, as in a data-centre image."""
    return None if probe.nvidia.image else plan.driver


def driver_findings(plans: tuple[Plan, ...], probe: Probe) -> Iterator[Finding]:
    """Why the host's own driver cannot run some of these plans, or cannot be replaced by rigup's."""
    yield from _absent(plans, probe)
    if not plans or not plans[0].rig.gpus:
        return
    if managed_driver(plans[0], probe):
        yield from _of_no_package(probe)
    elif needing := [plan for plan in plans if plan.build and plan.build.made_for]:
        yield from _unfit(needing, probe)


def _of_no_package(probe: Probe) -> Iterator[Finding]:
    """A library that no package brought: NVIDIA's `.run` installer did, and apt would install another beside it."""
    nvidia = probe.nvidia
    packages = {upstream(version) for version in (*nvidia.packages.values(), *nvidia.unconfigured.values())}
    if not nvidia.installed or nvidia.installed in packages:
        return
    run = f"sh NVIDIA-Linux-{probe.architecture}-{nvidia.installed}.run --uninstall"
    yield Finding(
        rule="host-driver",
        message=f"driver {nvidia.installed} belongs to no package: NVIDIA's .run installer "
        + ("installed it" if nvidia.installer else "installed it, but its uninstaller is gone"),
        hint=f"on the host: {'nvidia-uninstall' if nvidia.installer else run}; or keep it: {_KEEP}",
    )


def _unfit(needing: list[Plan], probe: Probe) -> Iterator[Finding]:
    """Why the host's own driver, which stays, cannot run some of these plans."""
    rig, nvidia = needing[0].rig, probe.nvidia
    lock = f"let rigup install and hold {nvidia_versions().driver.default}: rigup lock --upgrade driver"
    why, way = "rigup.lock pins none", lock
    if nvidia.image:
        why, way = f"rigup does not change the driver of {nvidia.image}", f"update it as {nvidia.image} does"
    elif any(gpu.unified_memory for gpu in rig.gpus):  # the vendor's system brings it
        way = "update it with its maker's tools"
    elif rig.keep_driver:
        why, way = (
            'rigup installs none with driver = "keep"',
            'let rigup install and hold the lock\'s: remove driver = "keep"',
        )
    if not nvidia.loaded:
        floor = max(plan.driver_floor for plan in needing)
        yield Finding(
            rule="host-driver",
            message=f"no NVIDIA driver is loaded, and {why}; this plan needs {floor} or later",
            hint=f"{way}; or install one yourself",
        )
    elif nvidia.mismatched:
        lost = next_boot_problem(probe)
        by_hand = MODULE_BY_HAND.format(kernel=booting_kernel(probe))
        reboot = f"do not reboot yet, {lost}: {by_hand}" if lost else "reboot the host"
        yield mismatch_finding(probe, f"{reboot}; or {way}")
    else:
        for problem in dict.fromkeys(filter(None, (too_old(plan, probe) for plan in needing))):
            yield Finding(rule="host-driver", message=problem, hint=f"{way}; {_BACK}")


def _absent(plans: tuple[Plan, ...], probe: Probe) -> Iterator[Finding]:
    """What the lock pins although NVIDIA's repository for this host's system does not have it."""
    driver = managed_driver(plans[0], probe) if plans else None
    missing = driver if driver and probe.nvidia.loaded != driver.version else None
    toolkits = dict.fromkeys(toolkit_of(plan.build) for plan in plans if plan.build)
    found = [one for toolkit in toolkits or (None,) for one in repository_refusals(probe.os, missing, toolkit)]
    for message, hint in dict.fromkeys((one.message, one.hint) for one in found):
        yield Finding(rule="host-driver", message=message, hint=hint)


def too_old(plan: Plan, probe: Probe) -> str:
    """Why the loaded driver cannot run a plan's build, with both version numbers; "" if it can.

    CUDA runs on any driver of the same or a later major version (docs.nvidia.com/deploy/cuda-compatibility).
    """
    made, nvidia = plan.build.made_for if plan.build else None, probe.nvidia
    if plan.build is None or made is None or not nvidia.loaded:
        return ""
    runs = not nvidia.cuda or int(nvidia.cuda.partition(".")[0]) >= int(made.cuda.partition(".")[0])
    if runs and int(nvidia.loaded.partition(".")[0]) >= plan.driver_floor:
        return ""
    most = f", which runs CUDA up to {nvidia.cuda}" if nvidia.cuda else ""
    build = f"{plan.build.engine} {plan.build.version}"
    return (
        f"driver {nvidia.loaded} is loaded{most}; {build} is built with CUDA {made.cuda} and needs driver "
        f"{plan.driver_floor} or later"
    )
