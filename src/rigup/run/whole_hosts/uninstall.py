"""A run that removes from a host all that rigup has put there."""

from __future__ import annotations

from rigup.connection.lease import OURS
from rigup.host import Host
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.whole_removal import Installed, installed_on, remove_everything
from rigup.run.hosts_run import HostsRun
from rigup.run.result import Change


class UninstallRun(HostsRun):
    """A run with the steps connect, `find`, `remove`. found: by host."""

    found: dict[str, Installed]

    def find(self, weights: bool) -> None:
        """Finds out what is there. weights: the checkpoints are to be removed as well."""
        self.found = {}
        self.context.each(lambda host: self._find(host, weights))

    def remove(self, weights: bool) -> None:
        """Removes it."""
        self.context.each(lambda host: self._remove(host, weights))

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
