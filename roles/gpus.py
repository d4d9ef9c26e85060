"""Everything that an engine needs to use a host's GPUs: driver, CUDA libraries, power limit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyinfra.api import deploy

from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable
from rigup.facts.probe import Probe, read_probe
from rigup.host import Host
from rigup.operations.apt.packages import pinned_packages
from rigup.operations.driver.packages import check_secure_boot
from rigup.operations.driver.power_limits import power_limit
from rigup.operations.driver.state import booting_kernel, stuck_packages
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import carried_out
from rigup.operations.primitives.text_files import text_files
from rigup.plan import Finding, Plan
from rigup.planner.driver_packages import driver_packages, driver_repository
from rigup.preflight.driver import managed_driver, too_old
from rigup.preflight.rig import differences
from rigup.preflight.virtualisation import CONTAINER, counts_on_patched_driver
from rigup.settings import HostSettings
from rigup.systemd.driver_files import toolkit_files
from roles.driver import container_driver, driver, fabric, repository, unfinished_driver


def gpus(plans: tuple[Plan, ...], probe: Probe, settings: HostSettings) -> bool:
    """Call the roles for GPUs, or none for a rig without GPUs. Return whether the driver changes."""
    rig = plans[0].rig
    if not rig.gpus:
        return False
    wanted = managed_driver(plans[0], probe)
    pins = {name: version for plan in plans if plan.build for name, version in plan.build.pinned_packages.items()}
    runtime = {n: v for plan in plans if plan.build for n, v in plan.build.pinned_runtime_packages.items()}
    source = driver_repository(
        probe.os, probe.architecture, settings.nvidia_repository, settings.nvidia_key_fingerprint
    )
    if wanted or pins or runtime:
        repository(source)
    changes = False
    if wanted and probe.virtualisation == CONTAINER:
        changes = container_driver(wanted, probe)
    elif wanted:
        check_secure_boot(probe)
        packages = driver_packages(
            wanted,
            probe.os,
            probe.architecture,
            booting_kernel(probe),
            probe.nvidia.nvswitches,
            probe.kernel_packages,
        )
        changes = driver(wanted, packages, source, probe, partial(check_host, plans))
        if changes:
            links()
    elif any(gpu.nvswitch for gpu in rig.gpus) or probe.nvidia.nvswitches:
        fabric(probe, restarted=False)
    if not changes and counts_on_patched_driver(plans, probe):
        patched_driver(probe)
    if pins or runtime:
        cuda({**pins, **runtime}, runtime, probe)
    if probe.virtualisation != CONTAINER:
        power(rig.power_limit_w, probe, changes)
    return changes


@deploy("cuda")
def cuda(pins: Mapping[str, str], runtime: Mapping[str, str], probe: Probe) -> None:
    """Pin the toolkit's packages and install the libraries that a build links.

    pins: all packages with their versions. runtime: those to install here. The compiler is installed by the build
    step, only on hosts that compile.
    """
    text_files(name="CUDA toolkit held at the lock's versions", files=toolkit_files(pins))
    if runtime:
        pinned_packages(name=f"CUDA libraries {', '.join(runtime)}", packages=runtime, probe=probe)


@deploy("power")
def power(limit_w: int | None, probe: Probe, driver_changes: bool) -> None:
    """Limit every GPU to `limit_w` watts, at each boot again; None removes a limit that rigup set.

    driver_changes: whether the driver is loaded again before this step, which resets every limit.
    """
    power_limit(
        name=f"power limit {limit_w} W" if limit_w is not None else "no power limit",
        limit_w=limit_w,
        probe=probe,
        restart=driver_changes,
    )


def broken_driver(plans: tuple[Plan, ...], probe: Probe) -> None:
    """Remove another driver that dpkg could not finish: until then apt installs nothing, whatever it is."""
    wanted = managed_driver(plans[0], probe)
    if wanted and stuck_packages(probe, wanted):
        unfinished_driver(wanted, probe)


@deploy("driver")
def links() -> None:
    """Check what the new driver makes of the links between the GPUs, before anything is served across them."""
    carried_out(name="links between GPUs verified", function=check_links)


@deploy("driver")
def patched_driver(probe: Probe) -> None:
    """Verify that data between GPUs arrive unchanged, or refuse to serve across them."""
    from rigup.operations.driver.links import verified_peers  # few drivers are patched

    cards = " ".join(sorted(gpu.uuid for gpu in probe.gpus))
    verified_peers(
        name="data between GPUs verified, as the driver is patched",
        check=check_patched_driver,
        state=f"{probe.nvidia.loaded} {cards}",
    )


def check_patched_driver(host: Host) -> None:
    """Raise HostFailed unless data between all GPUs with patched P2P were seen to arrive unchanged."""
    from rigup.operations.driver.links import read_links
    from rigup.preflight.links import patched

    read = read_links(host)
    found = tuple(patched(read, {gpu.index: gpu for gpu in read_probe(host).gpus}))
    if not found:
        why = read.error or "the check did not finish"
        raise HostFailed(
            f"{host.name}: data between its GPUs could not be verified: {why}", f"rigup verify {host.name}"
        )
    for one in found:
        if one.problem:
            raise HostFailed(f"{host.name}: {one.message}", one.hint)


def check_links(host: Host) -> None:
    """Raise HostFailed if data between GPUs arrive changed; report every other problem as a warning."""
    from rigup.operations.driver.links import read_links
    from rigup.preflight.links import link_findings

    try:
        read = read_links(host)
    except (HostFailed, Unreadable) as error:
        report(Progress(host.name, "log", text=f"warning: {error}"))
        return
    found = [one for one in link_findings(read, read_probe(host)) if one.problem]
    if any(pair.correct is False for pair in read.pairs):
        raise HostFailed(f"{host.name}: {'; '.join(one.message for one in found)}", f"rigup verify {host.name}")
    for one in found:
        report(Progress(host.name, "log", text=f"warning: {one.message} (rigup verify {host.name})"))


def why_links_hang(host: Host) -> str:
    """Return why transfers between the host's GPUs may never end, and what to try; "" for no known reason."""
    from rigup.operations.driver.links import read_links  # only a start that was not ready in time needs it
    from rigup.preflight.links import can_hang

    report(Progress(host.name, "service", text="reading the links between its GPUs"))
    try:
        why = can_hang(read_links(host, measure=False))
    except (HostFailed, Unreadable, *remote.CONNECTION_ERRORS):
        return ""
    way_out = f"rigup verify {host.name} says how to switch that off; or try NCCL_P2P_DISABLE=1 in `environment`"
    return f"{why}: {way_out}" if why else ""


def lost_cards(host: Host, plan: Plan) -> tuple[Finding, ...]:
    """Return a finding for each card of the rig that has stopped responding; none if the host does not say."""
    if not plan.rig.gpus:
        return ()
    try:
        found = differences(plan.rig, read_probe(host))
    except (HostFailed, Unreadable, *remote.CONNECTION_ERRORS):
        return ()
    return tuple(one for one in found if one.rule == "host-gpu-lost")


def check_host(plans: tuple[Plan, ...], probe: Probe) -> None:
    """Raise HostFailed if the GPUs do not match the declared rig or their driver is too old."""
    found = differences(plans[0].rig, probe)
    if found:
        raise HostFailed("; ".join(finding.message for finding in found), found[0].hint)
    for plan in plans:
        if problem := too_old(plan, probe):
            raise HostFailed(problem, "rigup lock --upgrade driver")
