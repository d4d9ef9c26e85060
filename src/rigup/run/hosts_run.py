"""A run over hosts for which no plan is needed: it asks what is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigup.connection.lease import myself
from rigup.errors import InputError
from rigup.facts.probe import Probe
from rigup.gateway.paths import UNIT as GATEWAY_UNIT
from rigup.plan import Finding
from rigup.project.inventory import HostEntry, Project
from rigup.run.audit_log import Recorder
from rigup.run.runner import Run

GATEWAY = GATEWAY_UNIT.removeprefix("rigup-").removesuffix(".service")
"""What a gateway is called beside services."""


class HostsRun(Run):
    """A run without plans."""

    def record(self, verb: str) -> None:
        """Has the run recorded on each host that was reached, with a lease or without, and here."""
        self.finisher.recorder = Recorder(self.context.project, myself().who, verb)
        self.finisher.without_lease = True

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """None: the clock and free space do not matter for what is installed."""
        return ()


def services_in(hosts: tuple[HostEntry, ...]) -> tuple[str, ...]:
    """The names of the services of these hosts, as the inventory has them; of those that take turns, the first."""
    found: list[Mapping[str, Any]] = [host.data.get("services") or {} for host in hosts]
    names = (
        str(name) for said in found if isinstance(said, Mapping) for name in said if name not in _swapped(said)[1:]
    )
    return tuple(dict.fromkeys(names))


def _swapped(said: Any) -> list[str]:
    """The services that take turns, among those of a host as the inventory has them."""
    tables = said.items() if isinstance(said, Mapping) else ()
    return [
        str(name) for name, one in tables if isinstance(one, Mapping) and one.get("swap") and one.get("enabled", True)
    ]


def check_services(project: Project, wanted: tuple[str, ...], more: tuple[str, ...] = ()) -> None:
    """Raises InputError for a name that is not a service of these hosts. more: what may be named beside them."""
    known = services_in(project.hosts)
    for name in wanted:
        groups = [found for host in project.hosts if name in (found := _swapped(host.data.get("services")))]
        if name not in (*known, *more) and groups:
            raise InputError(f"{name} takes turns with {groups[0][0]}, in its unit", f"name {groups[0][0]} instead")
        if name not in (*known, *more):
            elsewhere = [host.name for host in project.everyone if name in services_in((host,))]
            hint = f"services: {', '.join(known) or 'none'}"
            raise InputError(
                f'no service "{name}" on these hosts' if elsewhere else f'no service "{name}" in the inventory',
                f"it is on {', '.join(elsewhere)}: change --limit" if elsewhere else hint,
            )
