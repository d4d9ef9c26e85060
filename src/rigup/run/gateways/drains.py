"""Takes hosts out of every gateway before they change, and back after: no request goes where nobody answers.

Which backends there are, the gateways themselves say. One that is not installed yet sends requests nowhere and is left
out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import gevent
from pyinfra.api import State

from rigup.connection import pyinfra_internals
from rigup.connection.connections import Connections
from rigup.errors import HostFailed, InputError, RigupError
from rigup.gateway.paths import UNIT_FILE
from rigup.gateway.servers import UP, ServerState, in_flight, left_without, read_states, servers_of, servers_on
from rigup.host import Host, state_of
from rigup.operations.gateway.admin import DrainedNow, tell
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.project.inventory import HostEntry
from rigup.run.context import RunContext
from rigup.run.result import HostResult
from rigup.service import Service

STEP = "gateway"
POLL_SECONDS = 0.3
BACK_SECONDS = 60.0
DOWN_SECONDS = 10.0

Found = TypeVar("Found")
States = dict[str, ServerState]


def check_gateways(hosts: Collection[HostEntry], everyone: Collection[HostEntry]) -> None:
    """Raises InputError if a rollout over `hosts` leaves out a gateway of the inventory."""
    names = {host.name for host in hosts}
    serving = any(host.data.get("services") for host in hosts)
    missing = [host.name for host in gateways_in(everyone) if host.name not in names]
    if missing and serving:
        raise InputError(
            f"--limit: leaves out {', '.join(missing)}, which may send requests to the hosts that change",
            f"add the gateway to --limit: --limit ...,{missing[0]}; or pass --allow-outage",
        )


def gateways_in(hosts: Collection[HostEntry]) -> list[HostEntry]:
    """Those of these hosts that are a gateway."""
    return [host for host in hosts if host.data.get("gateway") is not None]


def patience_of(hosts: Collection[HostEntry]) -> dict[str, float]:
    """By host, how long its services may take to answer what they have begun, as the inventory says it."""
    found = {}
    for host in hosts:
        services = host.data.get("services")
        said = [one.get("drain_timeout") for one in (services or {}).values() if isinstance(one, dict)]
        default = Service.model_fields["drain_timeout"].default
        if said:
            found[host.name] = float(max(one if isinstance(one, int) and 0 <= one <= 3600 else default for one in said))
    return found


@contextmanager
def drains_of(context: RunContext, allow_outage: bool) -> Iterator[GatewayDrains | None]:
    """Connects to every gateway of the inventory, whatever --limit says; None without one.

    A gateway that cannot be reached is an error once it is asked, unless an outage is allowed.
    """
    entries = {host.name: host.data for host in gateways_in(context.project.everyone)}
    if not entries:
        yield None
        return
    contact = Connections(entries, context.connections.sudo_password)
    contact.begin()
    try:
        for host in contact.state.inventory:
            with suppress(RigupError, *remote.CONNECTION_ERRORS):
                contact.handshake(host)
        names = [host.name for host in contact.state.inventory if host.connected or not allow_outage]
        patience = patience_of(context.project.everyone)
        yield GatewayDrains(contact.state, names, context.results, patience, allow_outage)
    finally:
        contact.leave()


@dataclass
class GatewayDrains:
    """The gateways of a fleet.

    state: pyinfra's, with the gateways among its hosts. names: of these. results: of the hosts that change.
    patience: by host that serves, the seconds in which it answers what it has begun.
    """

    state: State
    names: Collection[str]
    results: Mapping[str, HostResult]
    patience: Mapping[str, float]
    allow_outage: bool = False

    def gateways(self, names: Collection[str]) -> list[str]:
        """Those of these hosts that are a gateway and nothing else."""
        return [name for name in names if name in self.names and name not in self.patience]

    def alone(self, unit: Collection[str]) -> bool:
        """Whether these hosts change by themselves: where a gateway serves, its change gives back all it had drained.

        Its own services have answered by then.
        """
        return any(name in self.names and name in self.patience for name in unit)

    def begin(self, batch: Collection[str]) -> None:
        """Sends these hosts no more requests, and waits until they have answered all.

        Raises HostFailed if a gateway does not answer, or if nobody else serves a model of theirs. Nothing is drained
        then.
        """
        found = self._sending_to(batch)
        for host, states in found.items():
            without = () if self.allow_outage else left_without(states, batch)
            if without:
                raise HostFailed(
                    f"{', '.join(batch)}: {host.name} would have no backend left for {', '.join(without)}",
                    "change fewer hosts at a time, repair the others, or pass --allow-outage",
                )
        try:
            for host, states in found.items():
                self._set(host, servers_on(states, batch), "drain")
            self._wait_until_idle(batch, {host: servers_on(states, batch) for host, states in found.items()})
        except BaseException:
            with suppress(HostFailed):
                self._give_back(batch)
            raise

    def end(self, batch: Collection[str]) -> None:
        """Sends these hosts requests again, and waits until every gateway has seen them healthy.

        Of a host that failed, the gateway's own health check decides.
        """
        found = self._give_back(batch)
        healthy = [name for name in batch if self.results[name].ok]
        deadline = time.monotonic() + BACK_SECONDS
        for host in found:
            while lacking := _away(self._states(host), healthy):
                if time.monotonic() > deadline:
                    raise HostFailed(
                        f"{host.name}: the gateway finds {', '.join(lacking)} not healthy",
                        f"on {host.name}: journalctl -u rigup-gateway",
                    )
                gevent.sleep(POLL_SECONDS)

    def carry_out(self, batch: Collection[str], change: Callable[[], object]) -> None:
        """Changes these hosts while no gateway sends them requests. What goes wrong with a gateway fails them."""
        try:
            self.begin(batch)
        except RigupError as error:
            for name in batch:
                self.results[name].fail("cancelled" if isinstance(error, jobs.Cancelled) else "refused", error)
            return
        try:
            change()
        finally:
            try:
                self.end(batch)
            except RigupError as error:
                for name in batch:
                    self.results[name].fail("failed", error)

    def stop(self, services: Mapping[str, Collection[str]], change: Callable[[], object]) -> None:
        """Stops services, by host, after gateways have sent them no more requests and they have answered all.

        Then the gateways' own checks decide, so that a service which starts again gets requests again. A gateway that
        does not answer keeps nothing from being stopped: its checks find out, too.
        """
        drained: dict[Host, tuple[str, ...]] = {}
        try:
            for host in self._hosts():
                with suppress(HostFailed):
                    if self._installed(host) and (names := servers_of(self._states(host), services)):
                        drained[host] = names
                        self._set(host, names, "drain")
            with suppress(HostFailed):
                self._wait_until_idle(services.keys(), drained)
            change()
            self._wait_until_down(drained)
        except jobs.Cancelled as error:
            for name in services:
                self.results[name].fail("cancelled", error)
        finally:
            for host, names in drained.items():
                with suppress(HostFailed):
                    self._set(host, names, "ready")

    def server_states(self) -> dict[str, str]:
        """What every gateway that runs answers to "show servers state", by host."""
        found = {}
        for host in self._hosts():
            with suppress(HostFailed):
                if self._installed(host):
                    found[host.name] = self._reach(host, partial(tell, host, "show servers state"))[0]
        return found

    def _sending_to(self, batch: Collection[str]) -> dict[Host, States]:
        """The installed gateways that have backends on these hosts. Raises HostFailed if one does not answer."""
        states = {host: self._states(host) for host in self._hosts() if self._installed(host)}
        return {host: found for host, found in states.items() if servers_on(found, batch)}

    def _hosts(self) -> list[Host]:
        return [host for host in self.state.inventory if host.name in self.names]

    def _installed(self, host: Host) -> bool:
        if not host.connected:
            raise _unreachable(host)
        return self._reach(host, lambda: remote.run(host, "test", "-e", UNIT_FILE).ok)

    def _states(self, host: Host) -> States:
        return self._reach(host, lambda: read_states(tell(host, "show stat")[0]))

    def _set(self, host: Host, servers: Collection[str], state: str) -> None:
        answers = self._reach(host, lambda: tell(host, *(f"set server {name} state {state}" for name in servers)))
        if problems := [answer for answer in answers if answer]:
            raise HostFailed(f"{host.name}: the gateway cannot {state} {', '.join(servers)}: {problems[0][:200]}")
        drained = state_of(host, DrainedNow).servers
        drained.update(servers) if state == "drain" else drained.difference_update(servers)

    def _reach(self, host: Host, ask: Callable[[], Found]) -> Found:
        """What a gateway's host answers, after a new connection if the earlier one was lost. Raises HostFailed."""
        with pyinfra_internals.at_work_on(self.state, host):
            try:
                try:
                    return ask()
                except remote.CONNECTION_ERRORS:
                    if not remote.reconnect(host):
                        raise
                return ask()
            except remote.CONNECTION_ERRORS:
                raise _unreachable(host) from None

    def _give_back(self, batch: Collection[str]) -> list[Host]:
        """Has every gateway send these hosts requests, and returns the installed ones.

        Raises HostFailed for the first that does not answer, after it has told the others.
        """
        found, errors = [], []
        for host in self._hosts():
            try:
                if self._installed(host):
                    self._set(host, servers_on(self._states(host), batch), "ready")
                    found.append(host)
            except HostFailed as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return found

    def _wait_until_idle(self, batch: Collection[str], found: Mapping[Host, Collection[str]]) -> None:
        """Waits for as long as the services of these hosts may take to drain; what is left then, they end or cut."""
        deadline = time.monotonic() + max((self.patience.get(name, 0.0) for name in batch), default=0.0)
        for host, names in found.items():
            while (left := in_flight(self._states(host), names)) and time.monotonic() < deadline:
                if jobs.cancelled():
                    raise jobs.Cancelled(f"{host.name}: cancelled while requests were in flight")
                for name in batch:
                    report(Progress(name, STEP, text=f"waiting for {left} requests in flight"))
                gevent.sleep(POLL_SECONDS)

    def _wait_until_down(self, found: Mapping[Host, Collection[str]]) -> None:
        """Waits until every gateway has seen these backends go: given back before, they would get requests."""
        deadline = time.monotonic() + DOWN_SECONDS
        for host, names in found.items():
            with suppress(HostFailed):
                while _running(self._states(host), names) and time.monotonic() < deadline:
                    gevent.sleep(POLL_SECONDS)


def _unreachable(host: Host) -> HostFailed:
    return HostFailed(
        f"{host.name}: the gateway cannot be reached",
        "check that it is running, or pass --allow-outage (and to apply, a --limit that leaves it out)",
    )


def _away(states: States, hosts: Collection[str]) -> list[str]:
    """The backends on these hosts that get no requests although they may."""
    names = servers_on(states, hosts)
    running = _running(states, names)
    return [name for name in names if name not in running]


def _running(states: States, names: Collection[str]) -> list[str]:
    """Those that their gateway finds healthy, drained ones included; one of weight 0 is "DRAIN" for good."""
    return [name for name in names if name in states and states[name].status in (UP, "DRAIN")]
