"""Checks whether the driver on a host fits the plan's build, for hosts whose driver rigup does not manage. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.catalogue.driver_versions import nvidia_versions
from rigup.facts.probe import Probe
from rigup.plan import Finding, Plan
from rigup.planner.assembly import toolkit_of
from rigup.planner.driver import repository_refusals

_BACK = "or reinstall the driver that this host had"


def driver_findings(plans: tuple[Plan, ...], probe: Probe) -> Iterator[Finding]:
    """Why the host's own driver cannot run some of these plans, or its repository lacks the driver of the lock."""
    yield from _absent(plans, probe)
    gpus = plans[0].rig.gpus if plans else ()
    needing = [plan for plan in plans if plan.build and plan.build.made_for]
    if not gpus or not needing or plans[0].driver is not None:
        return
    version = nvidia_versions().driver.default
    lock = f"let rigup install and hold {version}: rigup lock --upgrade driver"
    # the vendor's system brings the driver of such a GPU, and rigup does not install one
    way = "update it with its maker's tools" if any(gpu.unified_memory for gpu in gpus) else lock
    nvidia = probe.nvidia
    if not nvidia.loaded:
        (floor, *_) = sorted((plan.driver_floor for plan in needing), reverse=True)
        yield Finding(
            rule="host-driver",
            message=f"no NVIDIA driver is loaded and rigup.lock pins none; this plan needs {floor} or later",
            hint=f"{way}; or install one yourself",
        )
    elif nvidia.mismatched:
        yield Finding(
            rule="host-driver",
            message=f"driver {nvidia.loaded} is loaded but {nvidia.installed} is installed; CUDA programs cannot "
            "start until they match",
            hint=f"reboot the host; or {way}",
        )
    else:
        for problem in dict.fromkeys(filter(None, (too_old(plan, probe) for plan in needing))):
            yield Finding(rule="host-driver", message=problem, hint=f"{way}; {_BACK}")


def _absent(plans: tuple[Plan, ...], probe: Probe) -> Iterator[Finding]:
    """What the lock pins although NVIDIA's repository for this host's system does not have it."""
    driver = plans[0].driver if plans else None
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
