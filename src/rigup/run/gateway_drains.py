"""Takes hosts out of every gateway before a batch changes them, and back after: no request goes where nobody answers.

A gateway that is not installed yet sends requests nowhere and is left out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import gevent

from rigup.connection import pyinfra_internals
from rigup.errors import HostFailed, InputError
from rigup.gateway.paths import UNIT_FILE
from rigup.gateway.servers import UP, ServerState, in_flight, left_without, read_states, servers_on
from rigup.host import Host
from rigup.operations.gateway.admin import tell
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.project.inventory import HostEntry
from rigup.run.context import RunContext
from rigup.settings import GatewayPlan

STEP = "gateway"
POLL_SECONDS = 0.3
BACK_SECONDS = 60.0


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
        found = self._concerned(batch)
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
            self._give_back(batch, found)
            raise

    def end(self, batch: Collection[str]) -> None:
        """Sends these hosts requests again, and waits until every gateway has seen them healthy.

        Of a host that failed, the gateway's own health check decides.
        """
        found = self._concerned(batch)
        self._give_back(batch, found)
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
        """The installed gateways that send requests to these hosts."""
        found = []
        for host in self.context.state.inventory:
            settings = self.context.settings.get(host.name)
            if settings and settings.gateway and servers_on(settings.gateway.plan, batch):
                with pyinfra_internals.at_work_on(self.context.state, host):
                    if not host.connected:
                        raise HostFailed(f"{host.name}: the gateway cannot be reached", "check that it is running")
                    if remote.run(host, "test", "-e", UNIT_FILE).ok:
                        found.append((host, settings.gateway.plan))
        return found

    def _states(self, host: Host) -> dict[str, ServerState]:
        with pyinfra_internals.at_work_on(self.context.state, host):
            return read_states(tell(host, "show stat")[0])

    def _set(self, host: Host, servers: Collection[str], state: str) -> None:
        with pyinfra_internals.at_work_on(self.context.state, host):
            problem = "".join(tell(host, *(f"set server {name} state {state}" for name in servers)))
        # A server that a changed inventory has added is not there before the gateway's own change.
        if problem and "No such" not in problem:
            raise HostFailed(f"{host.name}: the gateway cannot {state} {', '.join(servers)}: {problem[:200]}")

    def _give_back(self, batch: Collection[str], found: Collection[tuple[Host, GatewayPlan]]) -> None:
        for host, plan in found:
            self._set(host, servers_on(plan, batch), "ready")

    def _wait_until_idle(self, batch: Collection[str], found: Collection[tuple[Host, GatewayPlan]]) -> None:
        """Waits for as long as the services of these hosts may take to drain; what is left then, they end or cut."""
        patience = max((plan.service.drain_timeout for name in batch for plan in self.context.plans[name]), default=0)
        deadline = time.monotonic() + patience
        for host, plan in found:
            names = servers_on(plan, batch)
            while (left := in_flight(self._states(host), names)) and time.monotonic() < deadline:
                for name in batch:
                    report(Progress(name, STEP, text=f"waiting for {left} requests in flight"))
                gevent.sleep(POLL_SECONDS)


def _away(states: Mapping[str, ServerState], names: Collection[str]) -> list[str]:
    """Those that get no requests although they may; one of weight 0 is "DRAIN" for good."""
    return [name for name in names if name in states and states[name].status not in (UP, "DRAIN")]
