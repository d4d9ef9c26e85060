"""A read-only run that reads and measures the links of hosts' GPUs. It needs no plan."""

from __future__ import annotations

from rigup.errors import HostFailed
from rigup.facts.links import Links
from rigup.facts.probe import Probe
from rigup.facts.unreadable import Unreadable
from rigup.host import Host
from rigup.operations.driver.links import read_links
from rigup.operations.primitives.progress import Progress, report
from rigup.plan import Finding
from rigup.preflight.links import LinkFinding, link_findings
from rigup.run.runner import Run


class VerifyRun(Run):
    """A run with the steps connect, then `read_links`. links, found: by host."""

    read_only = True
    links: dict[str, Links]
    found: dict[str, tuple[LinkFinding, ...]]

    def read_links(self, measure: bool) -> None:
        """Reads the links of every host; those without a GPU or a loaded driver fail. measure: also copies data."""
        self.links, self.found = {}, {}
        self.context.each(lambda host: self._read(host, measure))

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """None: a host whose plan does not fit is checked, too."""
        return ()

    def _read(self, host: Host, measure: bool) -> None:
        result = self.results[host.name]
        probe = result.probe or Probe()
        if not probe.nvidia.loaded:
            raise HostFailed(f"{host.name}: no NVIDIA driver is loaded", "install one: rigup apply")
        report(Progress(host.name, "verify", text="measuring" if measure else "reading"))
        try:
            links = read_links(host, measure)
        except Unreadable as error:
            raise HostFailed(f"{host.name}: {error}") from None
        self.links[host.name], self.found[host.name] = links, link_findings(links, probe)
        result.state = "differs" if any(one.problem for one in self.found[host.name]) else "unchanged"
