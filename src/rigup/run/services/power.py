"""A run that stops, starts or restarts services. It needs no plan: each release on a host says where it answers."""

from __future__ import annotations

from functools import partial
from typing import Literal

from rigup.errors import HostFailed, Refused, RigupError
from rigup.host import Host
from rigup.operations.primitives import jobs
from rigup.operations.service.endpoints import endpoint_of
from rigup.operations.service.health import ask_release
from rigup.operations.service.held import note_held
from rigup.operations.service.history import damage_hint, hosts_of
from rigup.operations.service.stopping import start, stop
from rigup.project.settings import disabled_in
from rigup.run.gateways.drains import GatewayDrains
from rigup.run.hosts_run import HostsRun, services_in
from rigup.run.multinode.groups import NodeGroups
from rigup.run.result import Change
from rigup.run.services.startable import check_startable

Verb = Literal["stop", "start", "restart"]


class PowerRun(HostsRun):
    """A run with the steps connect, `choose`, `carry_out`. steps: the services to be changed, by host."""

    steps: dict[str, tuple[str, ...]]

    def choose(self, verb: Verb, services: tuple[str, ...]) -> None:
        """Finds out which services are to be changed; a host without one of those named is refused."""
        self.steps = {name: () for name in self.results}
        self.context.each(lambda host: self._choose(host, verb, services))
        if verb == "restart":
            self._refuse_parts()

    def carry_out(self, verb: Verb, drains: GatewayDrains | None = None) -> None:
        """Changes them, hosts concurrently; started services must answer.

        drains: takes hosts out of gateways while they restart, one after another, and services before they stop.
        """
        self.record(verb)
        work = partial(self._change_services, verb=verb)
        if drains is None:
            self.context.each(work)
            return
        if verb == "stop":
            drains.stop({name: steps for name, steps in self.steps.items() if steps}, partial(self.context.each, work))
            return
        handshakes = self.context.handshakes.values()
        spans = {hosts_of(manifest) for each in handshakes for manifest in each.probe.releases.values()}
        names = [name for name, steps in self.steps.items() if steps]
        for unit in NodeGroups(hosts for hosts in spans if hosts).units(names):
            drains.carry_out(unit, partial(self.context.each, work, unit))

    def _choose(self, host: Host, verb: Verb, services: tuple[str, ...]) -> None:
        result, probe = self.results[host.name], self.context.handshakes[host.name].probe
        (entry,) = (each for each in self.context.project.hosts if each.name == host.name)
        here, disabled = services_in((entry,)), disabled_in(entry.data)
        chosen = []
        for name in (name for name in here if name in (services or here)):
            if damage := probe.damaged.get(name):
                raise HostFailed(f"{host.name}: {damage}", damage_hint(name, current=True))
            if name not in probe.releases:
                if name in services and name not in disabled:
                    raise Refused(f"{host.name}: {name} was never applied", "run rigup diff to see what apply would do")
            elif verb != "stop" and name in disabled:
                if name in services:
                    raise Refused(
                        f"{host.name}: {name}: the inventory says enabled = False",
                        f"set services.{name}.enabled = True, then run rigup apply",
                    )
            elif verb == "restart" or probe.rests(name) != (verb == "stop"):
                if verb == "restart":
                    check_startable(host.name, probe, name, probe.releases[name])
                chosen.append(name)
        self.steps[host.name] = tuple(chosen)
        result.changes = [Change("service", f"{verb} {name}") for name in chosen]
        result.state = "differs" if chosen else "pending"

    def _refuse_parts(self) -> None:
        """Refuses the other hosts of a service over several hosts of which one was refused: it starts as a whole."""
        refused = {name for name, result in self.results.items() if result.errors}
        for host, steps in self.steps.items():
            if host in refused:
                continue
            releases = self.context.handshakes[host].probe.releases if steps else {}
            for service in steps:
                if missing := [name for name in hosts_of(releases[service]) if name in refused]:
                    message = f"{host}: {service} was left as it is, since it spans {' and '.join(missing)}, too"
                    self.results[host].fail("failed", Refused(message, "solve the problem there first"))
                    self.steps[host], self.results[host].changes = (), []
                    break

    def _change_services(self, host: Host, verb: Verb) -> None:
        result, lease = self.results[host.name], self.context.leases[host.name]
        planned, result.changes = result.changes, []
        if not planned:
            return
        self._claim_unchanged(host)
        errors: list[RigupError] = []
        for change, name in zip(planned, self.steps[host.name], strict=True):
            if jobs.cancelled():
                raise jobs.Cancelled(f"{host.name}: cancelled before {change.step}")
            lease.check()
            try:
                if verb == "stop":
                    stop(host, name)
                else:
                    self._start(host, name, again=verb == "restart")
                result.changes.append(change)
            except HostFailed as error:
                errors.append(error)
        if errors:
            result.errors += errors[:-1]
            raise errors[-1]
        result.state = "changed"

    def _start(self, host: Host, name: str, again: bool) -> None:
        """Starts a service and waits until it answers; on a worker of a node group, until systemd has started it."""
        manifest = self.context.handshakes[host.name].probe.releases[name]
        start(host, name, again)
        if endpoint_of(host.name, name, manifest) is None:
            return
        try:
            self.results[host.name].answers.append(ask_release(host, manifest, name))
        except HostFailed as error:
            raise HostFailed(error.message, error.hint or f"see why: rigup logs {name} --limit {host.name}") from None
        note_held(host, name)
