"""A reboot during an apply: only if permitted, with a wait long enough for a large machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import gevent

from rigup.errors import HostFailed
from rigup.host import Host, state_of
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.units import stop_seconds
from rigup.units import seconds_text

BOOT_SECONDS = 900.0
POLL_SECONDS = 3.0
SETTLE_SECONDS = 120
BOOT_ID = "/proc/sys/kernel/random/boot_id"

# a timer may be a minute late by default
_SOON = ("--on-active=1", "--timer-property=AccuracySec=100ms")

_permitted = False


@dataclass
class _Reboots:
    """State of a host's reboots in this run."""

    afterwards: Callable[[], object] | None = None
    pause: Callable[[], object] | None = None
    resume: Callable[[], object] | None = None
    done: bool = False
    times: list[tuple[float, float]] = field(default_factory=list)


def permit() -> None:
    """Permits reboots for the rest of this run."""
    global _permitted
    _permitted = True


def afterwards(host: Host, action: Callable[[], object]) -> None:
    """Registers `action` to be called first after each reboot of this host."""
    state_of(host, _Reboots).afterwards = action


def around(host: Host, pause: Callable[[], object], resume: Callable[[], object]) -> None:
    """Registers what to do before each reboot of this host, and once the host can work again."""
    reboots = state_of(host, _Reboots)
    reboots.pause, reboots.resume = pause, resume


def times(host: Host) -> tuple[tuple[float, float], ...]:
    """Begin and end of each reboot of this host in this run, by time.monotonic."""
    return tuple(state_of(host, _Reboots).times)


def rebooted(host: Host) -> bool:
    """Whether this run has rebooted the host, so that its units were just started."""
    return state_of(host, _Reboots).done


def reboot(host: Host, step: str, why: str) -> None:
    """Reboots the host and returns once it is up again.

    Raises HostFailed if reboots are not permitted, or the host is not reachable within BOOT_SECONDS, after its
    services may have taken their time to stop.
    """
    if not _permitted:
        raise HostFailed(
            f"{host.name}: {step}: a reboot is required ({why}) but not permitted",
            "run rigup apply --reboot, or reboot the host and run rigup apply again",
        )
    reboots, began = state_of(host, _Reboots), time.monotonic()
    if reboots.pause:
        reboots.pause()
    before = remote.check_output(host, "cat", BOOT_ID).strip()
    stopping = stop_seconds(host)
    report(Progress(host.name, step, text=f"rebooting: {why}"))
    # detached and delayed, so that this command can still return
    remote.check_output(host, "systemd-run", "--quiet", "--collect", *_SOON, "systemctl", "reboot")
    _wait_for_boot(host, step, before, BOOT_SECONDS + stopping)
    reboots.done = True
    if reboots.afterwards:
        reboots.afterwards()
    report(Progress(host.name, step, text="waiting for boot to finish"))
    remote.run(
        host, "timeout", str(SETTLE_SECONDS), "systemctl", "is-system-running", "--wait", timeout=SETTLE_SECONDS + 30
    )
    reboots.times.append((began, time.monotonic()))
    if reboots.resume:
        reboots.resume()


def _wait_for_boot(host: Host, step: str, before: str, seconds: float) -> None:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        jobs.check_cancelled(f"{host.name}: {step}: cancelled during the reboot")
        gevent.sleep(POLL_SECONDS)
        report(Progress(host.name, step, text=f"rebooting, {time.monotonic() - began:.0f} s"))
        if _boot_id(host) not in ("", before):
            return
        remote.reconnect(host, always=True)
    raise HostFailed(
        f"{host.name}: {step}: not reachable within {seconds_text(seconds)} after the reboot",
        "check its console (BMC, IPMI serial over LAN, a screen); when it is up, see journalctl -b -1 -e and run "
        "rigup apply again",
    )


def _boot_id(host: Host) -> str:
    """The id of the current boot; "" while the host is not reachable."""
    try:
        output = remote.run(host, "cat", BOOT_ID, timeout=10)
    except remote.CONNECTION_ERRORS:
        return ""
    return output.stdout.strip() if output.ok else ""
