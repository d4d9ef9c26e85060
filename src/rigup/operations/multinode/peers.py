"""The state of one host's part of a multi-host service, and which hosts have joined it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rigup.host import Host
from rigup.operations.primitives import remote

ASK_SECONDS = 15
_COUNT = re.compile(r"[0-9]{1,9}")
RESTARTS = 2  # after this many restarts it will not start

_CONNECTED = r"""ss -Htn state established | while read -r _ _ own other _; do echo "${own##*:} ${other%:*}"; done"""


def trouble(host: Host, unit: str) -> str:
    """Why a unit does not run; "" if it does. Raises one of CONNECTION_ERRORS."""
    state, restarts = _state(host, unit)
    if state in ("failed", "inactive", "unknown"):
        return f"{unit} is {state}"
    return f"systemd had to restart {unit} {restarts} times" if restarts >= RESTARTS else ""


def restarted(host: Host, unit: str) -> bool:
    """Whether systemd had to restart a unit, so that waiting is pointless. Raises one of CONNECTION_ERRORS."""
    return _state(host, unit)[1] > 0


def _state(host: Host, unit: str) -> tuple[str, int]:
    words = ("systemctl", "show", unit, "--property=ActiveState,NRestarts")
    lines = remote.run(host, *words, timeout=ASK_SECONDS).stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    restarts = found.get("NRestarts", "")
    return found.get("ActiveState", "unknown"), int(restarts) if _COUNT.fullmatch(restarts) else 0


def without_connection(host: Host, addresses: Mapping[str, str], besides: int | None) -> tuple[str, ...]:
    """The other hosts, by name, without a TCP connection to the head. Raises one of CONNECTION_ERRORS, or HostFailed.

    addresses: by host. besides: a port of the head whose connections do not count.
    """
    pairs = [line.partition(" ") for line in remote.script(host, _CONNECTED, timeout=ASK_SECONDS).splitlines()]
    there = {_plain(address) for own, _, address in pairs if own != str(besides)}
    return tuple(name for name, address in addresses.items() if _plain(address) not in there)


def _plain(address: str) -> str:
    return address.strip("[]").removeprefix("::ffff:")
