"""Back to a release that a host still has: chosen, put back, asked, and the other one again if it does not answer."""

from __future__ import annotations

from typing import Any

from rigup import layout
from rigup.errors import HostFailed, Refused, RigupError
from rigup.operations import remote
from rigup.operations.kept_releases import KeptRelease, earlier
from rigup.operations.progress import Progress, report
from rigup.operations.releases import Check, mark_answered, switch

_THERE = '[ -d "$1" ] || echo "its build $1"; [ -z "$2" ] || [ -d "$2" ] || echo "its checkpoint $2"'


def choose(host: str, kept: tuple[KeptRelease, ...], to: int | None) -> tuple[KeptRelease | None, KeptRelease]:
    """The current release (None where there is none) and the one to go back to: `to`, or what it took over from.

    Raises Refused where there is no such release, or it runs already, or never answered.
    """
    service = kept[0].service
    current = next((release for release in kept if release.current), None)
    listed = ", ".join(f"{release.number}{' (current)' if release.current else ''}" for release in kept)
    hint = f"{service} has: {listed}; rigup releases tells what changed between them"
    if to is None:
        possible = earlier(kept, current.number if current else None)
        if not possible:
            raise Refused(f"{host}: {service}: there is no earlier release that has answered", hint)
        return current, possible[-1]
    wanted = next((release for release in kept if release.number == to), None)
    if wanted is None:
        raise Refused(f"{host}: {service}: there is no release {to}", hint)
    if wanted.current:
        raise Refused(f"{host}: {service}: release {to} is the current one", hint)
    if not wanted.answered:
        raise Refused(f"{host}: {service}: release {to} has never answered", hint)
    return current, wanted


def check_there(host: Any, release: KeptRelease) -> None:
    """Raises Refused where what a release needs is gone from the host."""
    build, checkpoint = release.manifest.get("build"), release.manifest.get("checkpoint") or {}
    weights = layout.weights_folder(checkpoint["repo"], checkpoint["revision"]) if checkpoint.get("revision") else ""
    gone = remote.script(host, _THERE, f"{layout.BUILDS}/{build}", weights).splitlines()
    if gone:
        raise Refused(
            f"{host.name}: {release.service}: release {release.number} cannot run: {' and '.join(gone)} is gone",
            "rigup apply, from the inventory and the lock of that time, brings it back",
        )


def roll_back(host: Any, wanted: KeptRelease, current: KeptRelease | None, check: Check, check_current: Check) -> None:
    """Switches to `wanted` and has it answer; raises HostFailed where it does not, `current` put back again then."""
    service = wanted.service
    report(Progress(host.name, "service", text=f"putting release {wanted.number} of {service} back"))
    try:
        switch(host, service, str(wanted.number))
        check(host)
    except (RigupError, *remote.LOST) as error:
        said = error.message if isinstance(error, RigupError) else f"{host.name}: {type(error).__name__}: {error}"
        raise _again(host, current, check_current, said) from None
    mark_answered(host, service, str(wanted.number))


def _again(host: Any, current: KeptRelease | None, check: Check, said: str) -> HostFailed:
    if current is None:
        return HostFailed(said, "rigup releases shows what else there is")
    hint = f"on the host: journalctl -u {layout.unit_name(current.service)}"
    try:
        switch(host, current.service, str(current.number))
        check(host)
    except (RigupError, *remote.LOST) as error:
        return HostFailed(f"{said}; and release {current.number} could not be put right either: {error}", hint)
    return HostFailed(f"{said}; release {current.number} runs again and answers", hint)
