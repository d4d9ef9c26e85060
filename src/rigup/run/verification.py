"""A read-only run that reads and measures the links of hosts' GPUs, and judges them under load. It needs no plan."""

from __future__ import annotations

from collections.abc import Mapping

from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable
from rigup.facts.gpu_load import HostLoad
from rigup.facts.links import Links
from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.operations.driver.links import read_links
from rigup.operations.primitives.progress import Progress, report
from rigup.plan import Finding
from rigup.preflight.links import LinkFinding, link_findings, load_findings
from rigup.run.runner import Run


class VerifyRun(Run):
    """A run with the steps connect, then `read_links`. links, loads, found: by host."""

    read_only = True
    links: dict[str, Links]
    loads: Mapping[str, HostLoad]
    found: dict[str, tuple[LinkFinding, ...]]

    def read_links(self, measure: bool, loads: Mapping[str, HostLoad]) -> None:
        """Reads the links of every host; those without a GPU or a loaded driver fail.

        measure: also copies data. loads: what was seen of hosts under load, to be judged, too.
        """
        self.links, self.loads, self.found = {}, loads, {}
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
        load = self.loads.get(host.name)
        under_load = load_findings(load, probe) if load else ()
        found = (*link_findings(links, probe), *under_load)
        self.links[host.name] = links
        self.found[host.name] = tuple(sorted(found, key=lambda one: not one.problem))
        result.state = "differs" if any(one.problem for one in self.found[host.name]) else "unchanged"
