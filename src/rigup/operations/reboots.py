"""A reboot in the middle of an apply: only where somebody allowed it, waited for as long as a big machine takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent

from rigup.errors import HostFailed
from rigup.operations import jobs, remote
from rigup.operations.progress import Progress, report
from rigup.units import seconds_text

BOOT_SECONDS = 900.0
POLL_SECONDS = 3.0
SETTLE_SECONDS = 120
BOOT_ID = "/proc/sys/kernel/random/boot_id"

# a timer may be a minute late unless it is told not to
_SOON = ("--on-active=1", "--timer-property=AccuracySec=100ms")
_AFTERWARDS = "rigup_after_reboot"
_REBOOTED = "rigup_rebooted"

_permitted = False


def permit() -> None:
    """From now on hosts may be rebooted where they need it."""
    global _permitted
    _permitted = True


def permitted() -> bool:
    """Whether somebody said that hosts may be rebooted."""
    return _permitted


def afterwards(host: Any, action: Callable[[], object]) -> None:
    """Has `action` called each time that this host has come back, before anything else is done there."""
    host.connector_data[_AFTERWARDS] = action


def rebooted(host: Any) -> bool:
    """Whether this run has rebooted the host: what systemd starts at boot is fresh."""
    return bool(host.connector_data.get(_REBOOTED))


def reboot(host: Any, step: str, why: str) -> None:
    """Reboots the host and returns once it is up again.

    Raises HostFailed where nobody allowed it, or where the host does not come back within BOOT_SECONDS.
    """
    if not _permitted:
        raise HostFailed(
            f"{host.name}: {step}: needs a reboot ({why}), and nobody allowed one",
            "rigup apply --reboot; or reboot it yourself and run rigup apply again",
        )
    before = remote.tell(host, "cat", BOOT_ID).strip()
    report(Progress(host.name, step, text=f"rebooting: {why}"))
    # detached and a moment later, so that the answer to this very command still comes through
    remote.tell(host, "systemd-run", "--quiet", "--collect", *_SOON, "systemctl", "reboot")
    _wait_for_boot(host, step, before)
    host.connector_data[_REBOOTED] = True
    if action := host.connector_data.get(_AFTERWARDS):
        action()
    report(Progress(host.name, step, text="waiting until it has started its services"))
    remote.ask(
        host, "timeout", str(SETTLE_SECONDS), "systemctl", "is-system-running", "--wait", timeout=SETTLE_SECONDS + 30
    )


def _wait_for_boot(host: Any, step: str, before: str) -> None:
    began = time.monotonic()
    while time.monotonic() - began < BOOT_SECONDS:
        if jobs.cancelled():
            raise jobs.Cancelled(f"{host.name}: {step}: cancelled while it reboots")
        gevent.sleep(POLL_SECONDS)
        report(Progress(host.name, step, text=f"rebooting, {time.monotonic() - began:.0f} s"))
        if _boot_id(host) not in ("", before):
            return
        remote.reconnect(host)
    raise HostFailed(
        f"{host.name}: {step}: did not come back within {seconds_text(BOOT_SECONDS)} after the reboot",
        "look at its console (BMC, IPMI serial over LAN, a screen); when it is up, journalctl -b -1 -e there "
        "tells how it went down, and rigup apply goes on from here",
    )


def _boot_id(host: Any) -> str:
    """Which boot answers; "" while none does."""
    try:
        said = remote.ask(host, "cat", BOOT_ID, timeout=10)
    except remote.LOST:
        return ""
    return said.stdout.strip() if said.ok else ""
