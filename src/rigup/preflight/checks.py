"""Compares a probe with plans before rigup changes the host, and returns all findings at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rigup import layout
from rigup.artifacts import LockedEnvironment
from rigup.catalogue.systems import system_facts
from rigup.facts.probe import Disk, Probe
from rigup.operations.builds.source import name_of
from rigup.operations.service.gpu_binding import unknown_gpu_uuids
from rigup.plan import Build, Finding, Plan
from rigup.preflight.driver import driver_findings
from rigup.preflight.rig import differences
from rigup.preflight.starting import free_mib, listening, port_finding, room_findings, room_notes
from rigup.preflight.virtualisation import virtualisation_findings
from rigup.rig import SUPPORTED_OS
from rigup.units import GIB, bytes_text

CLOCK_SKEW_SECONDS = 300
SPACE_FOR_A_BUILD = 2 * GIB
SPACE_FOR_WEIGHTS_SHARE = 0.02
UNPACKED = {"cuda": 2.15, "cpu": 3.4}
"""How much larger wheels are at least when unpacked, without bytecode, as measured (docs/builds.md, Python
environments). Images count as they are packed in the registry."""
IMAGES = "/var/lib/containers"
OF_APPLY_ALONE = ("host-clock", "host-disk", "host-port")
"""Rules that only matter to a verb that puts something on a host."""
_FOREIGN = ("host-os", "host-init", "host-architecture")


def preflight(
    probe: Probe,
    plans: tuple[Plan, ...],
    now: float,
    remove: bool = False,
    disabled: tuple[str, ...] = (),
    wheelhouse: bool = False,
) -> tuple[Finding, ...]:
    """All findings that prevent these plans from being applied to this host.

    now: this machine's time, in seconds since 1970. remove: the run also removes services that no plan names.
    wheelhouse: wheels come from this machine, not from an index.
    """
    left_over, leaving = _leaving(probe, plans, remove, disabled)
    return (
        *_operating_system(probe),
        *_clock(probe, now),
        *_disks(probe, plans, wheelhouse),
        *(differences(plans[0].rig, probe) if plans else ()),
        *virtualisation_findings(plans, probe),
        *driver_findings(plans, probe),
        *_named_gpus(probe, plans),
        *room_findings(plans, probe, leaving),
        *(found for plan in plans for found in _port(probe, plan, left_over, leaving)),
        *_containers(probe, plans),
    )


def shared_gpu_notes(
    probe: Probe, plans: tuple[Plan, ...], remove: bool = False, disabled: tuple[str, ...] = ()
) -> Iterator[str]:
    """Warnings about what others do on the GPUs of these plans, with room for both. Arguments: as for `preflight`."""
    return room_notes(plans, probe, _leaving(probe, plans, remove, disabled)[1])


def free_for(
    plan: Plan, plans: tuple[Plan, ...], remove: bool, disabled: tuple[str, ...], probe: Probe
) -> tuple[int, ...]:
    """MiB that each card of a plan has free, with what services of the plans hold; () where no card answers.

    remove, disabled: as for `preflight`.
    """
    return free_mib(plans, plan, probe, _leaving(probe, plans, remove, disabled)[1])


def _leaving(
    probe: Probe, plans: tuple[Plan, ...], remove: bool, disabled: tuple[str, ...]
) -> tuple[set[str], set[str]]:
    """The units of services that no plan names, and those that the run stops before it starts others."""
    stopping = set(map(layout.unit_name, disabled))
    left_over = _left_over_units(probe, plans) - stopping
    return left_over, stopping | (left_over if remove else set())


def unsupported_host_findings(found: tuple[Finding, ...], probe: Probe, plans: tuple[Plan, ...]) -> tuple[Finding, ...]:
    """The findings of an apply that mean that rigup does not support this kind of host and cannot query it."""
    declared = differences(plans[0].rig, probe) if plans else ()
    return tuple(one for one in found if one.rule in _FOREIGN and one not in declared)


def _containers(probe: Probe, plans: tuple[Plan, ...]) -> Iterator[Finding]:
    if not any(plan.build and plan.build.method == "image" for plan in plans):
        return
    from rigup.planner.rules.host import without_quadlet  # imports all rules, which is slow

    if problem := without_quadlet(probe.os):
        yield Finding(rule="host-quadlet", message=problem[0], hint=problem[1])


def _operating_system(probe: Probe) -> Iterator[Finding]:
    if probe.os not in SUPPORTED_OS:
        name = probe.os_name or probe.os or "unknown"
        needs = system_facts().needs(probe.os, probe.os_like)
        yield Finding(
            rule="host-os",
            message=f"{name} is not supported" + (f": it would need {needs}" if needs else ""),
            hint=f"use one of: {', '.join(SUPPORTED_OS)}",
        )
    elif probe.init != "systemd":
        yield Finding(
            rule="host-init",
            message=f"process 1 is {probe.init}, not systemd",
            hint="use a machine that boots with systemd",
        )
    if probe.architecture not in ("x86_64", "aarch64"):
        yield Finding(
            rule="host-architecture", message=f"{probe.architecture} is not supported", hint="use x86_64 or aarch64"
        )


def _clock(probe: Probe, now: float) -> Iterator[Finding]:
    skew = probe.clock - now
    if abs(skew) > CLOCK_SKEW_SECONDS:
        way = "ahead of" if skew > 0 else "behind"
        yield Finding(
            rule="host-clock",
            message=f"its clock is {abs(skew):.0f} s {way} this machine's: certificate checks and apt would fail",
            hint="set it: timedatectl set-ntp true",
        )


def _disks(probe: Probe, plans: tuple[Plan, ...], wheelhouse: bool) -> Iterator[Finding]:
    for disk in probe.disks:
        if not disk.writable:
            yield Finding(
                rule="host-disk", message=f"{disk.folder} is not writable", hint="check whether it is mounted read-only"
            )
    for users in _by_disk(probe, plans, wheelhouse).values():
        free = users[0][0].free_bytes
        if sum(size for _, _, size in users) > free:
            needs = " and ".join(f"{what} {bytes_text(size)} in {on.folder}" for on, what, size in users)
            together = ", on the same disk" if len(users) > 1 else ""
            yield Finding(
                rule="host-disk",
                message=f"{needs}{together}, but only {bytes_text(free)} are free",
                hint="free up space, or mount a larger disk there",
            )


def spare_bytes(probe: Probe, plans: tuple[Plan, ...], wheelhouse: bool = False) -> dict[str, int]:
    """By mount, the free bytes that weights, builds, environments and images of these plans will leave there.

    wheelhouse: as for `preflight`.
    """
    spare = {_mount(disk): disk.free_bytes for disk in probe.disks}
    for mount, users in _by_disk(probe, plans, wheelhouse).items():
        spare[mount] -= sum(size for _, _, size in users)
    return spare


def uncounted_notes(probe: Probe, plans: tuple[Plan, ...], wheelhouse: bool = False) -> Iterator[str]:
    """Warnings about missing environments whose size the lock does not have. wheelhouse: as for `preflight`."""
    for build in _missing_builds(probe, plans):
        if (environment := build.environment) and not environment.bytes:
            later = "; the host checks again before it unpacks them" if wheelhouse else ""
            yield (
                f"warning: rigup.lock has no size of the wheels of {environment.engine} {environment.version}, so the "
                f"disk check leaves this environment out{later}. To add the size: rigup lock --upgrade "
                f"{environment.engine}"
            )


def unpacked_bytes(environment: LockedEnvironment) -> int:
    """How many bytes an environment's files have at least, without bytecode; 0 if the lock has no size of it."""
    return int(environment.bytes * UNPACKED[environment.variant])


def _by_disk(probe: Probe, plans: tuple[Plan, ...], wheelhouse: bool) -> dict[str, list[tuple[Disk, str, int]]]:
    """By mount, what goes there with its bytes: counted together, as it is written side by side."""
    builds = _missing_builds(probe, plans)
    environments = [build.environment for build in builds if build.environment]
    # What was sent is kept as it is; uv's cache has what came from an index unpacked, and a build gets copies of it
    # (programs.build_environment). Nobody knows which wheels are there already.
    kept = sum(each.bytes if wheelhouse else unpacked_bytes(each) for each in environments if not probe.kept_wheels)
    needed = (
        (layout.BUILDS, "a build needs", SPACE_FOR_A_BUILD if any(build.method == "source" for build in builds) else 0),
        (layout.BUILDS, "an environment needs", sum(map(unpacked_bytes, environments))),
        (layout.PACKAGES, "its packages, which the host keeps, need", kept),
        (layout.WEIGHTS, "the weights need", missing_weights(probe, plans, SPACE_FOR_WEIGHTS_SHARE)),
        (IMAGES, "an image needs", sum(build.image.bytes for build in builds if build.image)),
    )
    found: dict[str, list[tuple[Disk, str, int]]] = {}
    for folder, what, size in needed:
        there = probe.disk(folder)
        if there and there.writable and size:
            found.setdefault(_mount(there), []).append((there, what, size))
    return found


def _mount(disk: Disk) -> str:
    return disk.mount or disk.folder


def _missing_builds(probe: Probe, plans: tuple[Plan, ...]) -> list[Build]:
    """The builds of these plans that the host lacks, each once."""
    wanted = {name_of(plan.build, probe.architecture, probe.os): plan.build for plan in plans if plan.build}
    return [build for name, build in wanted.items() if name not in probe.builds]


def missing_weights(probe: Probe, plans: tuple[Plan, ...], more: float = 0.0) -> int:
    """How many bytes of weights are still missing. Services may share the same weights, or a folder.

    more: space for other files, as a share of the weights.
    """
    wanted: dict[str, dict[str, int]] = {}  # folder to quantisation to bytes: each quantisation has its own files
    for checkpoint in (checkpoint for plan in plans for checkpoint in plan.checkpoints):
        if checkpoint.revision is not None and checkpoint.host_folder is None:
            folder = layout.weights_folder(checkpoint.repo, checkpoint.revision)
            wanted.setdefault(folder, {})[checkpoint.quant] = checkpoint.bytes
    return sum(
        max(0, int(sum(sizes.values()) * (1 + more)) - probe.incoming.get(folder, 0))
        for folder, sizes in wanted.items()
        if folder not in probe.weights
    )


def _named_gpus(probe: Probe, plans: tuple[Plan, ...]) -> Iterator[Finding]:
    for plan, uuid in unknown_gpu_uuids(plans, probe):
        there = ", ".join(gpu.uuid for gpu in probe.gpus)
        yield Finding(
            rule="host-gpu-uuid",
            message=f"services.{plan.service.name}.gpus: {uuid} does not exist; found: {there}",
            hint="list the GPUs with their UUIDs: rigup status --json",
        )


def _left_over_units(probe: Probe, plans: tuple[Plan, ...]) -> set[str]:
    """The units of rigup's services on the host that no plan names."""
    return {layout.unit_name(name) for name in set(probe.current) - {plan.service.name for plan in plans}}


def _port(probe: Probe, plan: Plan, left_over: set[str], leaving: set[str]) -> Iterator[Finding]:
    """leaving: units that the run stops before."""
    if plan.rank:  # only the head serves the API
        return
    own = {layout.unit_name(plan.service.name), *leaving}
    if listener := listening(probe, plan.service.port, plan.service.listen, own):
        if listener.unit in left_over:
            hint = "remove that service, which is no longer in the inventory: rigup apply --remove"
            yield port_finding(plan.service.name, listener, hint)
        else:
            yield port_finding(plan.service.name, listener)
