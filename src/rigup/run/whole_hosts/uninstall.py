"""A run that removes from a host all that rigup has put there."""

from __future__ import annotations

from functools import partial

from rigup.connection.lease import OURS, myself
from rigup.host import Host
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.whole_removal import Installed, installed_on, remove_everything
from rigup.run.audit_log import Recorder, keep_here
from rigup.run.gateways.drains import GatewayDrains
from rigup.run.hosts_run import HostsRun
from rigup.run.result import Change


class UninstallRun(HostsRun):
    """A run with the steps connect, `find`, `remove`. found: by host."""

    found: dict[str, Installed]

    def find(self, weights: bool) -> None:
        """Finds out what is there. weights: the checkpoints are to be removed as well."""
        self.found = {}
        self.context.each(lambda host: self._find(host, weights))

    def remove(self, weights: bool, drains: GatewayDrains | None = None) -> None:
        """Removes it, services after gateways have sent them no more requests. The record is kept here alone."""
        recorder = Recorder(self.context.project, myself().who, "uninstall")
        work = partial(self.context.each, partial(self._remove, weights=weights))
        if drains is None:
            work()
        else:
            drains.stop({name: found.services for name, found in self.found.items()}, work)
        there = [name for name, found in self.found.items() if found.is_anything(weights)]
        keep_here(recorder.record(self.results[name], {}) for name in there)

    def _find(self, host: Host, weights: bool) -> None:
        result, probe = self.results[host.name], self.context.handshakes[host.name].probe
        found = self.found[host.name] = installed_on(host, tuple(sorted({*probe.current, *probe.damaged})))
        result.state = "differs" if found.is_anything(weights) else "unchanged"

    def _remove(self, host: Host, weights: bool) -> None:
        result, lease = self.results[host.name], self.context.leases[host.name]
        if self._claim(host) != OURS:
            raise self._stale_comparison(host)
        lease.check()
        report(Progress(host.name, "uninstall", text="stopping services after their requests in flight"))
        remove_everything(host, weights)
        found = self.found[host.name]
        result.changes = [Change("uninstall", f"service {name}") for name in found.services]
        result.changes.append(Change("uninstall", "rigup's files and user" if weights else "rigup's files"))
        result.state = "changed"
