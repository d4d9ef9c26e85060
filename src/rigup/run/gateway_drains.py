"""Takes hosts out of every gateway before a batch changes them, and back after: no request goes where nobody answers.

A gateway that is not installed yet sends requests nowhere and is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import gevent

from rigup.connection import pyinfra_internals
from rigup.errors import HostFailed, InputError
from rigup.gateway.paths import UNIT_FILE
from rigup.gateway.servers import UP, ServerState, in_flight, left_without, read_states, servers_on
from rigup.host import Host
from rigup.operations.gateway.admin import tell
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.project.inventory import HostEntry
from rigup.run.context import RunContext
from rigup.settings import GatewayPlan

STEP = "gateway"
POLL_SECONDS = 0.3
BACK_SECONDS = 60.0

Found = TypeVar("Found")


def check_gateways(hosts: Collection[HostEntry], everyone: Collection[HostEntry]) -> None:
    """Raises InputError if a rollout over `hosts` leaves out a gateway of the inventory."""
    names = {host.name for host in hosts}
    serving = any(host.data.get("services") for host in hosts)
    missing = [host.name for host in everyone if host.data.get("gateway") is not None and host.name not in names]
    if missing and serving:
        raise InputError(
            f"--limit: leaves out {', '.join(missing)}, which may send requests to the hosts that change",
            f"add the gateway to --limit: --limit ...,{missing[0]}; or pass --allow-outage",
        )


@dataclass
class GatewayDrains:
    """The gateways of a run."""

    context: RunContext
    allow_outage: bool = False

    def gateways(self, names: Collection[str]) -> list[str]:
        """Those of these hosts that are a gateway and nothing else."""
        settings, plans = self.context.settings, self.context.plans
        return [name for name in names if settings[name].gateway and not plans[name]]

    def begin(self, batch: Collection[str]) -> None:
        """Sends these hosts no more requests, and waits until they have answered all.

        Raises HostFailed if a gateway does not answer, or if nobody else serves a model of theirs. Nothing is drained
        then.
        """
        found = [(host, plan) for host, plan in self._concerned(batch) if self._installed(host)]
        for host, plan in found:
            without = () if self.allow_outage else left_without(plan, self._states(host), batch)
            if without:
                raise HostFailed(
                    f"{', '.join(batch)}: {host.name} would have nobody left for {', '.join(without)}",
                    "change fewer hosts at a time, repair the others, or pass --allow-outage",
                )
        try:
            for host, plan in found:
                self._set(host, servers_on(plan, batch), "drain")
            self._wait_until_idle(batch, found)
        except BaseException:
            with suppress(HostFailed):
                self._give_back(batch)
            raise

    def end(self, batch: Collection[str]) -> None:
        """Sends these hosts requests again, and waits until every gateway has seen them healthy.

        Of a host that failed, the gateway's own health check decides.
        """
        found = self._give_back(batch)
        results = self.context.results
        healthy = [name for name in batch if results[name].ok]
        deadline = time.monotonic() + BACK_SECONDS
        for host, plan in found:
            names = servers_on(plan, healthy)
            while lacking := _away(self._states(host), names):
                if time.monotonic() > deadline:
                    raise HostFailed(
                        f"{host.name}: the gateway finds {', '.join(lacking)} not healthy",
                        f"on {host.name}: journalctl -u rigup-gateway",
                    )
                gevent.sleep(POLL_SECONDS)

    def _concerned(self, batch: Collection[str]) -> list[tuple[Host, GatewayPlan]]:
        """The gateways that send requests to these hosts."""
        found = []
        for host in self.context.state.inventory:
            settings = self.context.settings.get(host.name)
            if settings and settings.gateway and servers_on(settings.gateway.plan, batch):
                found.append((host, settings.gateway.plan))
        return found

    def _installed(self, host: Host) -> bool:
        if not host.connected:
            raise _unreachable(host)
        return self._reach(host, lambda: remote.run(host, "test", "-e", UNIT_FILE).ok)

    def _states(self, host: Host) -> dict[str, ServerState]:
        return self._reach(host, lambda: read_states(tell(host, "show stat")[0]))

    def _set(self, host: Host, servers: Collection[str], state: str) -> None:
        answers = self._reach(host, lambda: tell(host, *(f"set server {name} state {state}" for name in servers)))
        # A server that a changed inventory has added is not there before the gateway's own change.
        problems = [answer for answer in answers if answer and "No such" not in answer]
        if problems:
            raise HostFailed(f"{host.name}: the gateway cannot {state} {', '.join(servers)}: {problems[0][:200]}")

    def _reach(self, host: Host, ask: Callable[[], Found]) -> Found:
        """What a gateway's host answers, after a new connection if the earlier one was lost. Raises HostFailed."""
        with pyinfra_internals.at_work_on(self.context.state, host):
            try:
                try:
                    return ask()
                except remote.CONNECTION_ERRORS:
                    if not remote.reconnect(host):
                        raise
                return ask()
            except remote.CONNECTION_ERRORS:
                raise _unreachable(host) from None

    def _give_back(self, batch: Collection[str]) -> list[tuple[Host, GatewayPlan]]:
        """Has every gateway send these hosts requests, and returns the installed ones.

        Raises HostFailed for the first that does not answer, after it has told the others.
        """
        found, errors = [], []
        for host, plan in self._concerned(batch):
            try:
                if self._installed(host):
                    self._set(host, servers_on(plan, batch), "ready")
                    found.append((host, plan))
            except HostFailed as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return found

    def _wait_until_idle(self, batch: Collection[str], found: Collection[tuple[Host, GatewayPlan]]) -> None:
        """Waits for as long as the services of these hosts may take to drain; what is left then, they end or cut."""
        patience = max((plan.service.drain_timeout for name in batch for plan in self.context.plans[name]), default=0)
        deadline = time.monotonic() + patience
        for host, plan in found:
            names = servers_on(plan, batch)
            while (left := in_flight(self._states(host), names)) and time.monotonic() < deadline:
                if jobs.cancelled():
                    raise jobs.Cancelled(f"{host.name}: cancelled while requests were in flight")
                for name in batch:
                    report(Progress(name, STEP, text=f"waiting for {left} requests in flight"))
                gevent.sleep(POLL_SECONDS)


def _unreachable(host: Host) -> HostFailed:
    return HostFailed(
        f"{host.name}: the gateway cannot be reached",
        "check that it is running, or leave it out with --limit and pass --allow-outage",
    )


def _away(states: Mapping[str, ServerState], names: Collection[str]) -> list[str]:
    """Those that get no requests although they may; one of weight 0 is "DRAIN" for good."""
    return [name for name in names if name in states and states[name].status not in (UP, "DRAIN")]
