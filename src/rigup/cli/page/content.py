"""The content of a fleet's page as frozen values; `collect.py` collects it, `document.py` draws it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rigup.cli.page.memory_bar import GpuUse

State = Literal["unreachable", "failed", "no answer", "drifted", "in order"]

# worst first. State: (text, kind, sign)
STATES: dict[State, tuple[str, str, str]] = {
    "unreachable": ("unreachable", "bad", "?"),
    "failed": ("failed", "bad", "×"),  # noqa: RUF001
    "no answer": ("no answer", "bad", "×"),  # noqa: RUF001
    "drifted": ("drifted", "warn", "≠"),
    "in order": ("in order", "good", "✓"),
}


@dataclass(frozen=True)
class PageOrigin:
    """The origin of a page. lock: sha256 of the lock, "" without one. commit: of the fleet folder, or ""."""

    fleet: str
    made: str
    rigup: str
    lock: str
    commit: str
    limit: str = ""


@dataclass(frozen=True)
class Error:
    """An error message and its hint."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Version:
    """One version on a host, compared with lock and plan; `wanted` is "" if they do not set it."""

    what: str
    found: str
    wanted: str

    @property
    def differs(self) -> bool:
        """Whether the versions differ."""
        return bool(self.wanted) and self.found != self.wanted


@dataclass(frozen=True)
class DriftItem:
    """One difference from the plan, from `rigup.run.drift.Drift`."""

    what: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class ReleaseItem:
    """A release that a host retains. changed: texts of its changes from the release before."""

    number: int
    made: str
    current: bool
    answered: bool
    changed: tuple[str, ...]


@dataclass(frozen=True)
class ServiceContent:
    """One service of a host. row: as in `rigup status --json`. serves, engine: readable names.

    planned: whether the inventory has it; otherwise it is left over.
    releases: newest first; None if they could not be read. results: of `rigup bench`, newest first.
    """

    name: str
    row: dict[str, Any]
    serves: str = ""
    engine: str = ""
    planned: bool = True
    facts: tuple[tuple[str, str], ...] = ()
    memory: tuple[GpuUse, ...] = ()
    drift: tuple[DriftItem, ...] = ()
    releases: tuple[ReleaseItem, ...] | None = ()
    results: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class HostContent:
    """One host. facts: (name, value) pairs. drift: the host's own, without its services'."""

    name: str
    group: str
    state: State
    errors: tuple[Error, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    versions: tuple[Version, ...] = ()
    drift: tuple[DriftItem, ...] = ()
    services: tuple[ServiceContent, ...] = ()


@dataclass(frozen=True)
class FleetContent:
    """The content of the whole page. gateways: as in `rigup status --json`."""

    origin: PageOrigin
    hosts: tuple[HostContent, ...]
    gateways: tuple[dict[str, Any], ...] = ()

    @property
    def worst_first(self) -> tuple[HostContent, ...]:
        """The hosts sorted by state, worst first, in the inventory's order within a state."""
        order = list(STATES)
        return tuple(sorted(self.hosts, key=lambda host: order.index(host.state)))

    @property
    def counts(self) -> dict[State, int]:
        """The number of hosts in each state, without states that have none."""
        found = {state: sum(host.state == state for host in self.hosts) for state in STATES}
        return {state: count for state, count in found.items() if count}
