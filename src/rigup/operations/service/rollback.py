"""Rolls a service back to a retained release, checks it, and restores the current one if it does not answer."""

from __future__ import annotations

from rigup import layout
from rigup.errors import HostFailed, Refused, RigupError
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.health import of_lost_host
from rigup.operations.service.history import RetainedRelease, earlier
from rigup.operations.service.releases import Check, mark_healthy, switch

_THERE = '[ -d "$1" ] || echo "build $1"; shift; for each; do [ -d "$each" ] || echo "checkpoint $each"; done'


def choose(
    host: str, kept: tuple[RetainedRelease, ...], to: int | None
) -> tuple[RetainedRelease | None, RetainedRelease]:
    """The current release (or None) and the one to roll back to: `to`, or the one that the current one replaced.

    Raises Refused if that release does not exist, is current, or has never answered.
    """
    service = kept[0].service
    current = next((release for release in kept if release.current), None)
    listed = ", ".join(f"{release.number}{' (current)' if release.current else ''}" for release in kept)
    hint = f"choose one of {listed}; rigup releases shows what changed between them"
    if to is None:
        possible = earlier(kept, current.number if current else None)
        if not possible:
            raise Refused(f"{host}: {service}: no earlier release has answered", hint)
        return current, possible[-1]
    wanted = next((release for release in kept if release.number == to), None)
    if wanted is None:
        raise Refused(f"{host}: {service}: release {to} does not exist", hint)
    if wanted.current:
        raise Refused(f"{host}: {service}: release {to} is already current", hint)
    if not wanted.answered:
        raise Refused(f"{host}: {service}: release {to} has never answered", hint)
    return current, wanted


def check_there(host: Host, release: RetainedRelease) -> None:
    """Raises Refused if the release's build or checkpoint no longer exists on the host."""
    build = release.manifest.get("build")
    loaded = [release.manifest.get(key) or {} for key in ("checkpoint", "draft")]
    weights = [layout.weights_folder(each["repo"], each["revision"]) for each in loaded if each.get("revision")]
    gone = remote.script(host, _THERE, f"{layout.BUILDS}/{build}", *weights).splitlines()
    if gone:
        raise Refused(
            f"{host.name}: {release.service}: release {release.number} cannot run: missing {' and '.join(gone)}",
            "restore the inventory and lock of that time and run rigup apply",
        )


def roll_back(
    host: Host, wanted: RetainedRelease, current: RetainedRelease | None, check: Check, check_current: Check
) -> None:
    """Switches to `wanted` and checks it; if it does not answer, restores `current` and raises HostFailed."""
    service = wanted.service
    report(Progress(host.name, "service", text=f"rolling {service} back to release {wanted.number}"))
    try:
        switch(host, service, str(wanted.number))
        check(host)
    except (RigupError, *remote.CONNECTION_ERRORS) as error:
        if lost := of_lost_host(host, error, f"whether release {wanted.number} answers is unknown"):
            raise lost from None
        way_back = getattr(error, "hint", None)
        raise _again(host, current, check_current, remote.words_of(host, error), way_back) from None
    mark_healthy(host, service, str(wanted.number))


def _again(host: Host, current: RetainedRelease | None, check: Check, problem: str, way_back: str | None) -> HostFailed:
    """Restores the current release. way_back: the hint of the problem."""
    if current is None:
        return HostFailed(problem, way_back or "run rigup releases to see the other releases")
    hint = f"on the host: journalctl -u {layout.unit_name(current.service)}"
    try:
        switch(host, current.service, str(current.number))
        check(host)
    except (RigupError, *remote.CONNECTION_ERRORS) as error:
        also = f"{problem}; restoring release {current.number} also failed: {error}"
        return HostFailed(also, getattr(error, "hint", None) or way_back or hint)
    return HostFailed(f"{problem}; release {current.number} was restored and answers", way_back or hint)
