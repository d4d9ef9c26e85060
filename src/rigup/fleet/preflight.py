"""What must be true of a host before anything on it is changed: plan against probe, all findings at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rigup import layout
from rigup.facts.probe import Probe
from rigup.fleet.preflight_driver import driver_findings
from rigup.fleet.preflight_rig import differences
from rigup.operations.gpu_binding import strangers
from rigup.plan import Finding, Plan
from rigup.rig import SUPPORTED_OS
from rigup.units import GIB, bytes_text

CLOCK_SKEW_SECONDS = 300
SPACE_FOR_A_BUILD = 2 * GIB
SPACE_FOR_WEIGHTS_SHARE = 0.02


def preflight(probe: Probe, plans: tuple[Plan, ...], now: float, remove: bool = False) -> tuple[Finding, ...]:
    """All that speaks against applying these plans to this host.

    now: this machine's time, seconds since 1970. remove: services that no plan names will be gone by then.
    """
    return (
        *_operating_system(probe),
        *_clock(probe, now),
        *_disks(probe, plans),
        *(differences(plans[0].rig, probe) if plans else ()),
        *driver_findings(plans, probe),
        *_named_gpus(probe, plans),
        *(found for plan in plans for found in _port(probe, plan, _left_over_units(probe, plans), remove)),
        *_containers(probe, plans),
    )


def _containers(probe: Probe, plans: tuple[Plan, ...]) -> Iterator[Finding]:
    if not any(plan.build and plan.build.method == "image" for plan in plans):
        return
    from rigup.planner.rules.images import without_quadlet  # with it come all rules

    if problem := without_quadlet(probe.os):
        yield Finding(rule="host-quadlet", message=problem[0], hint=problem[1])


def _operating_system(probe: Probe) -> Iterator[Finding]:
    if probe.os not in SUPPORTED_OS:
        name = probe.os_name or probe.os or "unknown"
        yield Finding(rule="host-os", message=f"{name} is not supported", hint=f"supported: {', '.join(SUPPORTED_OS)}")
    elif probe.init != "systemd":
        yield Finding(
            rule="host-init", message=f"process 1 is {probe.init}, not systemd", hint="rigup needs a machine that boots"
        )
    if probe.architecture not in ("x86_64", "aarch64"):
        yield Finding(
            rule="host-architecture", message=f"{probe.architecture} is not supported", hint="x86_64 and aarch64 are"
        )


def _clock(probe: Probe, now: float) -> Iterator[Finding]:
    skew = probe.clock - now
    if abs(skew) > CLOCK_SKEW_SECONDS:
        way = "ahead of" if skew > 0 else "behind"
        yield Finding(
            rule="host-clock",
            message=f"its clock is {abs(skew):.0f} s {way} this machine's: certificates and apt would fail",
            hint="set it: timedatectl set-ntp true",
        )


def _disks(probe: Probe, plans: tuple[Plan, ...]) -> Iterator[Finding]:
    for disk in probe.disks:
        if not disk.writable:
            yield Finding(
                rule="host-disk", message=f"{disk.folder} cannot be written to", hint="is it mounted read-only?"
            )
    needed = {
        layout.BUILDS: SPACE_FOR_A_BUILD if any(plan.build and plan.build.method == "source" for plan in plans) else 0,
        layout.WEIGHTS: sum(size for plan in plans if (size := _missing_weights(probe, plan))),
    }
    what = {layout.BUILDS: "a build needs", layout.WEIGHTS: "the weights need"}
    for folder, size in needed.items():
        there = probe.disk(folder)
        built = folder == layout.BUILDS and probe.builds
        if there and there.writable and not built and size > there.free_bytes:
            free = bytes_text(there.free_bytes)
            yield Finding(
                rule="host-disk",
                message=f"{what[folder]} {bytes_text(size)} in {there.folder}, {free} are free",
                hint="make room, or mount a larger disk there",
            )


def _missing_weights(probe: Probe, plan: Plan) -> int:
    if plan.checkpoint is None or plan.checkpoint.revision is None:
        return 0
    folder = layout.weights_folder(plan.checkpoint.repo, plan.checkpoint.revision)
    if folder in probe.weights:
        return 0
    return max(0, int(plan.checkpoint.bytes * (1 + SPACE_FOR_WEIGHTS_SHARE)) - probe.incoming.get(folder, 0))


def _named_gpus(probe: Probe, plans: tuple[Plan, ...]) -> Iterator[Finding]:
    for plan, uuid in strangers(plans, probe):
        there = ", ".join(gpu.uuid for gpu in probe.gpus)
        yield Finding(
            rule="host-gpu-uuid",
            message=f"services.{plan.service.name}.gpus: there is no {uuid}; found: {there}",
            hint="rigup status --json lists each GPU with its UUID",
        )


def _left_over_units(probe: Probe, plans: tuple[Plan, ...]) -> set[str]:
    """The units of services of rigup's that no plan names any more."""
    return {layout.unit_name(name) for name in set(probe.current) - {plan.service.name for plan in plans}}


def _port(probe: Probe, plan: Plan, left_over: set[str], remove: bool) -> Iterator[Finding]:
    own = layout.unit_name(plan.service.name)
    for listener in probe.listeners if plan.rank == 0 else ():  # the head alone has the API
        if listener.port != plan.service.port or listener.unit == own or (remove and listener.unit in left_over):
            continue
        holder = listener.unit or listener.program or "another program"
        hint = "stop that, or give the service another port"
        if listener.unit in left_over:
            hint = "the inventory does not name that service any more: rigup apply --remove takes it away"
        yield Finding(
            rule="host-port",
            message=f"port {listener.port} of service {plan.service.name} is in use by {holder}",
            hint=hint,
        )
        return
