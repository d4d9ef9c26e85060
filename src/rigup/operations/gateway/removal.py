"""Removes a gateway that rigup installed earlier."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup.gateway.paths import (
    ACME_FOLDER,
    ACME_STATE,
    ACME_TIMER,
    ACME_TIMER_FILE,
    ACME_UNIT_FILE,
    CANDIDATE,
    CONFIGURATION_FILE,
    FOLDER,
    PORTS_UNIT,
    PORTS_UNIT_FILE,
    PREVIOUS,
    SHARED_FILE,
    SHARED_UNIT,
    SHARED_UNIT_FILE,
    SMG_FOLDER,
    SMG_UNIT,
    SMG_UNIT_FILE,
    UNIT,
    UNIT_FILE,
)
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import TextFiles

STOP_SECONDS = 180
# $1 units, then paths, in the order of their removal.
_REMOVE = (
    'for unit in $1; do systemctl --quiet disable --now "$unit" 2>/dev/null || true; done; shift; rm -rf -- "$@"; '
    "systemctl daemon-reload"
)
# What an apply that was killed may leave, too, with keys beside it.
_TRACES = (
    UNIT_FILE,
    SHARED_UNIT_FILE,
    SMG_UNIT_FILE,
    ACME_UNIT_FILE,
    *(f"{folder}/{CONFIGURATION_FILE.rpartition('/')[2]}" for folder in (FOLDER, CANDIDATE, PREVIOUS)),
)


@operation()
def no_gateway() -> Generator[FunctionCommand, None, None]:
    """Ensures that no gateway of rigup's runs. The package stays."""
    if not host.get_fact(TextFiles, paths=_TRACES):
        host.noop("this host is not a gateway")
        return
    yield step(remove)


def remove(host: Host) -> None:
    """Stops the gateway and removes its files."""
    units = (SHARED_UNIT, UNIT, SMG_UNIT, PORTS_UNIT, ACME_TIMER)
    folders = (FOLDER, CANDIDATE, PREVIOUS, SMG_FOLDER, ACME_FOLDER, ACME_STATE)
    beside = (SHARED_FILE, SHARED_UNIT_FILE, SMG_UNIT_FILE, PORTS_UNIT_FILE, ACME_TIMER_FILE, ACME_UNIT_FILE)
    remove_part(host, units, (*folders, *beside, UNIT_FILE), "removing the gateway", STOP_SECONDS)


def remove_part(host: Host, units: Iterable[str], paths: Iterable[str], doing: str, timeout: float = 60) -> None:
    """Stops units, then removes paths in their order.

    A unit's file comes last: while it exists, an interrupted removal is repeated. doing: for messages.
    """
    remote.script(host, _REMOVE, " ".join(units), *paths, doing=doing, timeout=timeout)
