"""A run that has the engines on hosts judge the plans of those hosts; services go on."""

from __future__ import annotations

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.judgement import Judgement
from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.operations.builds.source import name_of
from rigup.operations.judgement import ask, can_judge
from rigup.operations.weights.checkpoint import FileSource
from rigup.plan import BoundPlan, Finding
from rigup.preflight.checks import free_for
from rigup.run.runner import Run


class JudgementRun(Run):
    """A run with the steps connect, then `ask`. judgements: by host, each plan with what its engine said.

    A plan whose engine cannot be asked has None.
    """

    judgements: dict[str, list[tuple[BoundPlan, Judgement | None]]]

    def ask(self) -> None:
        """Asks about every plan of every host. A host that lacks a build fails."""
        self.judgements = {name: [] for name in self.results}
        self.context.each(self._ask)

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """None: nothing of the host is changed."""
        return ()

    def _ask(self, host: Host) -> None:
        result, settings = self.results[host.name], self.context.settings[host.name]
        probe, plans = result.probe or Probe(), self.bound(host.name)
        for plan in plans:
            build, checkpoint = plan.build, plan.checkpoint
            if build is None or checkpoint is None or not can_judge(plan):
                self.judgements[host.name].append((plan, None))
                continue
            name = name_of(build, probe.architecture, probe.os)
            if name not in probe.builds:
                message = f"{host.name}: {build.engine} {build.version} is not installed"
                raise HostFailed(message, f"run rigup apply --limit {host.name}, which asks it")
            hub, token = settings.source_of(checkpoint.location)
            free = free_for(plan.offline, plans, settings.remove, settings.disabled, probe)
            source = FileSource(hub, layout.HUB_TOKEN if token else None, settings.packages.wheelhouse)
            self.judgements[host.name].append((plan, ask(host, probe, plan.offline, name, free, source)))
        refused = any(said and said.refusal for _, said in self.judgements[host.name])
        result.state = "differs" if refused else "unchanged"
