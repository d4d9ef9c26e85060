"""The drift of a host from its plans and the lock, as far as its probe shows it. Pure.

`rigup diff` adds the drift that takes further commands to find (drift_probe.py), and the changes of an apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from rigup import layout
from rigup.facts.manifest import checkpoints_of
from rigup.facts.probe import Nvidia, Probe
from rigup.operations.driver.state import MODULE_BY_HAND, booting_kernel, next_boot_problem, unpinned_packages
from rigup.plan import DriverPlan, Plan
from rigup.preflight.driver import managed_driver
from rigup.preflight.rig import differences
from rigup.systemd.release import GPUS_KEY, as_kept
from rigup.units import list_text

What = Literal[
    "gpus",
    "host",
    "kernel",
    "driver",
    "packages",
    "power",
    "not applied",
    "build",
    "checkpoint",
    "command",
    "environment",
    "config",
    "unit",
    "unit overrides",
    "state",
    "not in the inventory",
]

# Drop-ins of the distribution are not drift.
_SHIPPED_UNITS = ("/usr/lib/", "/lib/")
MOST_NAMED = 4
_KEYS: tuple[What, ...] = ("build", "checkpoint", "command", "environment")
_RELEASE_KEYS = (*_KEYS, GPUS_KEY)


class Drift(NamedTuple):
    """One difference. service: "" for the host as a whole. hint: how to correct it if a plain apply does not."""

    what: What
    message: str
    service: str = ""
    hint: str = ""

    def as_json(self) -> dict[str, str]:
        """As JSON values."""
        return self._asdict()


def drift_of(
    probe: Probe,
    plans: tuple[Plan, ...],
    manifests: Mapping[str, dict[str, Any]],
    builders: tuple[str, ...] = (),
    disabled: tuple[str, ...] = (),
) -> tuple[Drift, ...]:
    """The drift that the probe shows.

    manifests: the planned release of each service, by name. builders: the hosts whose builds this host may use.
    disabled: services that are to be stopped.
    """
    return (
        *_unfinished(probe),
        *(_machine(probe, plans[0]) if plans else ()),
        *(found for plan in plans for found in _service(probe, plan, manifests[plan.service.name], builders)),
        *_disabled(probe, disabled),
        *_left_over(probe, plans, disabled),
    )


def driver_differences(nvidia: Nvidia, planned: DriverPlan | None) -> tuple[str, ...]:
    """The driver that the kernel runs, then the differences: another one on disk, another one in the lock.

    planned: None if rigup does not manage the driver. () if no driver runs and none is planned.
    """
    if not nvidia.loaded and planned is None:
        return ()
    on_disk = [f"{nvidia.installed} installed"] if nvidia.mismatched else []
    in_lock = [f"lock {planned.version}"] if planned and nvidia.loaded != planned.version else []
    return (nvidia.loaded or "none", *on_disk, *in_lock)


def _unfinished(probe: Probe) -> Iterator[Drift]:
    """Packages of anybody's that dpkg has left by halves, also on a host of a gateway alone: apt refuses all work."""
    if probe.unfinished:
        unfinished = f"dpkg has not finished {list_text(probe.unfinished, MOST_NAMED)}"
        yield Drift(
            "packages", unfinished, hint="apply finishes them before it uses apt; on the host: dpkg --configure -a"
        )


def _machine(probe: Probe, plan: Plan) -> Iterator[Drift]:
    for finding in differences(plan.rig, probe):
        yield Drift("gpus" if finding.rule.startswith("host-gpu") else "host", finding.message, hint=finding.hint)
    if plan.rig.gpus and (booting := booting_kernel(probe)) != probe.kernel:
        yield _other_kernel(probe, booting, managed_driver(plan, probe))
    driver = managed_driver(plan, probe)
    differing = driver_differences(probe.nvidia, driver)
    if len(differing) > 1:
        yield Drift("driver", ", ".join(differing))
    if driver and (others := unpinned_packages(probe, driver)):
        yield Drift("packages", list_text([f"{name} {version}" for name, version in others.items()], MOST_NAMED))
    limit = plan.rig.power_limit_w
    other = {gpu.index: gpu.power.limit_w for gpu in probe.gpus if limit is not None and gpu.power.limit_w != limit}
    if other:
        found = [f"GPU {index} has {'none' if w is None else f'{w:g} W'}" for index, w in other.items()]
        yield Drift("power", f"{list_text(found, MOST_NAMED)}; declared: {limit} W")


def _other_kernel(probe: Probe, booting: str, driver: DriverPlan | None) -> Drift:
    """That the next boot starts another kernel, and whether the GPUs work there."""
    problem = next_boot_problem(probe)
    hint = "reboot when convenient"
    if problem and driver:
        hint = "do not reboot yet: run rigup apply"
    elif problem:
        hint = f"do not reboot yet: {MODULE_BY_HAND.format(kernel=booting)}"
    elif driver and not probe.nvidia.loaded:
        hint = "run rigup apply: it installs the driver for that kernel"
    message = f"runs {probe.kernel}, the next boot starts {booting}"
    return Drift("kernel", f"{message}; {problem}" if problem else message, hint=hint)


def _service(probe: Probe, plan: Plan, wanted: dict[str, Any], builders: tuple[str, ...]) -> Iterator[Drift]:
    name = plan.service.name
    release, unit = probe.releases.get(name), probe.units.get(name)
    if name in probe.damaged:
        pass  # its contents are unknown: the host has failed for that
    elif release is None:
        yield Drift("not applied", "has no release on this host", name)
    else:
        yield from _release(probe, name, release, wanted)
        yield from _origin(probe, plan, str(release.get("build", "")), builders)
    if plan.build and (moved := _moved_packages(probe, plan.build.pinned_runtime_packages)):
        yield Drift("packages", list_text(moved, MOST_NAMED), name)
    if unit and (release is not None or name in probe.damaged) and unit.active != "active" and not probe.rests(name):
        yield Drift("state", f"{layout.unit_name(name)} is {unit.active}", name)
    if unit and (by_hand := _overrides(unit.overrides)):
        hint = f"to remove them: systemctl revert {layout.unit_name(name)}; apply keeps them"
        yield Drift("unit overrides", ", ".join(by_hand), name, hint=hint)


def _release(probe: Probe, name: str, release: dict[str, Any], planned: dict[str, Any]) -> Iterator[Drift]:
    wanted = as_kept(planned, release)
    for key in _KEYS:
        if release.get(key) != wanted.get(key):
            yield Drift(key, _moved(key, release.get(key), wanted.get(key)), name)
    if release.get(GPUS_KEY) != wanted.get(GPUS_KEY):
        there, now = (", ".join(uuid for _, uuid in manifest.get(GPUS_KEY) or ()) for manifest in (release, wanted))
        yield Drift("gpus", f"runs on {there or 'any'}; the plan: {now or 'any'}", name)
    for other in (key for key in wanted if key not in _RELEASE_KEYS):
        if release.get(other) != wanted[other]:
            yield Drift("config", f"{other} differs from the plan", name)
    if (build := str(release.get("build", ""))) and build not in probe.builds:
        yield Drift("build", f"{layout.BUILDS}/{build} no longer exists", name)
    for checkpoint in checkpoints_of(release):
        if not checkpoint.get("revision"):
            continue
        folder = layout.weights_folder(checkpoint["repo"], checkpoint["revision"])
        if folder not in probe.weights:
            yield Drift("checkpoint", f"{folder} has no receipt", name)


def _origin(probe: Probe, plan: Plan, build: str, builders: tuple[str, ...]) -> Iterator[Drift]:
    """A build by a host that is not a builder of this host; builds without a record of their origin are skipped."""
    made, name = probe.built_by.get(build), plan.service.name
    if made is not None and made not in (plan.host, *builders):
        trusted = f"neither this host nor its builder {' or '.join(builders)}" if builders else "not this host"
        replace = f"systemctl stop {layout.unit_name(name)}; rm -r {layout.BUILDS}/{build}"
        yield Drift(
            "build", f"{build} was built by {made}, {trusted}", name, hint=f"on the host: {replace}; then rigup apply"
        )


def _moved(key: str, there: Any, wanted: Any) -> str:
    """The differences, short enough for one line."""
    if key == "checkpoint":
        return f"{_checkpoint(there)}; the plan: {_checkpoint(wanted)}"
    if key == "build":
        return f"{there}; the plan: {wanted}"
    if key == "environment":
        old, new = dict(there or {}), dict(wanted or {})
        names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        return f"differs from the plan: {list_text(names, MOST_NAMED)}"
    gone = [word for word in there or [] if word not in (wanted or [])]
    new_words = [word for word in wanted or [] if word not in (there or [])]
    return f"{' '.join(gone) or 'nothing'}; the plan: {' '.join(new_words) or 'without'}"


def _checkpoint(checkpoint: Any) -> str:
    return f"{checkpoint['repo']} {checkpoint['quant']} at {str(checkpoint['revision'])[:12]}" if checkpoint else "none"


def _moved_packages(probe: Probe, pins: Mapping[str, str]) -> list[str]:
    there = probe.nvidia.packages
    return [
        f"{name} {there.get(name, 'not installed')}; the lock: {version}"
        for name, version in pins.items()
        if there.get(name, "").rpartition("-")[0] != version and there.get(name) != version
    ]


def _overrides(paths: str) -> list[str]:
    return [path for path in paths.split() if not path.startswith(_SHIPPED_UNITS)]


def _disabled(probe: Probe, disabled: tuple[str, ...]) -> Iterator[Drift]:
    for name in disabled:
        if name in probe.current and not probe.rests(name):
            message = f"{layout.unit_name(name)} is {probe.active(name)}; the inventory says enabled = False"
            yield Drift("state", message, name)


def _left_over(probe: Probe, plans: tuple[Plan, ...], disabled: tuple[str, ...]) -> Iterator[Drift]:
    for name in left_over(probe, plans, disabled):
        yield Drift(
            "not in the inventory",
            f"{layout.unit_name(name)} is {probe.active(name)}",
            name,
            hint="run rigup apply --remove to stop and remove it; its weights and build stay until rigup prune",
        )


def left_over(probe: Probe, plans: tuple[Plan, ...], disabled: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The services on a host that are no longer in the inventory; disabled ones are."""
    return tuple(sorted(set(probe.current) - {plan.service.name for plan in plans} - set(disabled)))
