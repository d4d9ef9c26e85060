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
class Origin:
    """Where a page comes from. lock: sha256 of the lock, "" where there is none. commit: of the fleet folder, or ""."""

    fleet: str
    made: str
    rigup: str
    lock: str
    commit: str
    limit: str = ""


@dataclass(frozen=True)
class Error:
    """As rigup shows one."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Version:
    """One version on a host against what the lock and the plan have; `wanted` is "" where they say nothing of it."""

    what: str
    found: str
    wanted: str

    @property
    def differs(self) -> bool:
        """Whether it is another one."""
        return bool(self.wanted) and self.found != self.wanted


@dataclass(frozen=True)
class DriftItem:
    """One thing that is not as planned, as `rigup.run.drift.Drift` has it."""

    what: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class ReleaseItem:
    """One that a host keeps. changed: what it changed of the one before, in words."""

    number: int
    made: str
    current: bool
    answered: bool
    changed: tuple[str, ...]


@dataclass(frozen=True)
class ServiceContent:
    """One service of a host. row: as `rigup status --json` has it. serves, engine: for people.

    planned: whether the inventory has it; one that it does not have is a left-over.
    releases: newest first; None where they could not be read. results: of `rigup bench`, newest first.
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
    """One host. facts: (what, value). drift: the host's own; a service's is with the service."""

    name: str
    group: str
    state: State
    errors: tuple[Error, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    versions: tuple[Version, ...] = ()
    drift: tuple[DriftItem, ...] = ()
    services: tuple[ServiceContent, ...] = ()

    @property
    def differing(self) -> tuple[str, ...]:
        """What has drifted, each word once: the host's own, then its services'."""
        found = [one.what for one in self.drift]
        found += [one.what for service in self.services for one in service.drift]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class FleetContent:
    """All of the page."""

    origin: Origin
    hosts: tuple[HostContent, ...]

    @property
    def worst_first(self) -> tuple[HostContent, ...]:
        """The hosts by state, in the inventory's order within one."""
        order = list(STATES)
        return tuple(sorted(self.hosts, key=lambda host: order.index(host.state)))

    @property
    def counts(self) -> dict[State, int]:
        """How many hosts are in each state; those in which none is are left out."""
        found = {state: sum(host.state == state for host in self.hosts) for state in STATES}
        return {state: count for state, count in found.items() if count}
