"""A run over hosts for which no plan is needed: it asks what is there."""

from __future__ import annotations

from rigup.connection.lease import NOBODYS, OURS, myself
from rigup.errors import InputError
from rigup.facts.probe import Probe
from rigup.gateway.paths import UNIT as GATEWAY_UNIT
from rigup.host import Host
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

    def _claim_unchanged(self, host: Host) -> None:
        """Claims a host before it is changed. Raises Refused if another run has held it since this one read it."""
        if self._claim(host) not in (OURS, NOBODYS):
            raise self._stale_comparison(host)

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """None: the clock and free space do not matter for what is installed."""
        return ()


def services_in(hosts: tuple[HostEntry, ...], members: bool = False) -> tuple[str, ...]:
    """The names of the services of these hosts, as the inventory has them.

    Of those that take turns only the first, which their unit has its name from; members: all of them.
    """
    found: list[str] = []
    for host in hosts:
        firsts = firsts_in(host)
        found += [name for name in host.services if members or firsts.get(name, name) == name]
    return tuple(dict.fromkeys(found))


def firsts_in(host: HostEntry) -> dict[str, str]:
    """By each service of a host that takes turns, the first of its group."""
    group = [name for name, said in host.services.items() if said.get("swap") and said.get("enabled", True)]
    return {name: group[0] for name in group}


def check_services(
    project: Project, wanted: tuple[str, ...], more: tuple[str, ...] = (), members: bool = False
) -> None:
    """Raises InputError for a name that is not a service of these hosts.

    more: what may be named beside them. members: services that take turns may be named, too, not only their first.
    """
    known = services_in(project.hosts, members)
    for name in wanted:
        if name in (*known, *more):
            continue
        if first := next((firsts[name] for host in project.hosts if name in (firsts := firsts_in(host))), ""):
            raise InputError(f"{name} takes turns with {first}, in its unit", f"name {first} instead")
        elsewhere = [host.name for host in project.everyone if name in services_in((host,), members)]
        hint = f"choose from: {', '.join(known)}" if known else "run rigup plan to see what each host serves"
        raise InputError(
            f'no service "{name}" on these hosts' if elsewhere else f'no service "{name}" in the inventory',
            f"change --limit: it is on {', '.join(elsewhere)}" if elsewhere else hint,
        )
