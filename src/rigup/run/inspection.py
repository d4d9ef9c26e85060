"""A read-only run: the common part of `diff`, `status` and `report`."""

from __future__ import annotations

from typing import Any

import gevent

from rigup.errors import HostFailed
from rigup.facts.probe import Probe
from rigup.host import Host, state_of
from rigup.operations.builds.source import name_of
from rigup.operations.primitives import remote
from rigup.operations.service.answer import Answers
from rigup.operations.service.history import damage_hint
from rigup.plan import BoundPlan, Finding
from rigup.preflight.checks import unsupported_host_findings
from rigup.preflight.rig import differences
from rigup.report.collect import HostReport, collect_report
from rigup.run.drift import Drift, What, drift_of
from rigup.run.drift_probe import ASKED_ROLES, asked_drift
from rigup.run.result import HostResult
from rigup.run.runner import Run
from rigup.systemd.release import release_of


class Inspection(Run):
    """A run that never takes a lease. drift: the differences by host, after `compare_all` or `note_drift`.

    apply_blockers: the reasons against an apply, by host. reports: the data for a report, by host.
    """

    read_only = True
    drift: dict[str, tuple[Drift, ...]]
    apply_blockers: dict[str, tuple[Finding, ...]]
    reports: dict[str, HostReport]

    def connect_and_probe(self) -> None:
        """Connects to every host and probes it. A reason against an apply counts as drift."""
        self.drift = {name: () for name in self.results}
        self.apply_blockers, self.reports = {}, {}
        self.connect(take_lease=False)

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """The findings that make a comparison impossible; the others go to `apply_blockers`."""
        found = super()._blocking_findings(name, probe)
        known = differences(self.plans[name][0].rig, probe) if self.plans[name] else ()  # drift_of reports these
        strange = unsupported_host_findings(found, probe, self.plans[name])
        self.apply_blockers[name] = tuple(one for one in found if one not in known and one not in strange)
        return strange

    def compare_all(self, deep: bool = False) -> None:
        """Finds the changes that apply would make, and all other drift.

        deep: hash every file of every checkpoint.
        """
        self.compare()
        self.note_drift()
        self.context.each(lambda host: self._ask(host, deep))
        for name, result in self.results.items():
            if result.state == "pending":
                result.state = "differs" if self.drift[name] else "unchanged"
        self.note_damage()

    def note_damage(self) -> None:
        """Fails each host with an unreadable current release; call it after all other checks."""
        for name, result in self.results.items():
            if result.probe is not None and result.probe.damaged:
                found = result.probe.damaged.items()
                errors = (HostFailed(f"{name}: {what}", damage_hint(of, current=True)) for of, what in found)
                result.fail("failed", *errors)

    def note_drift(self) -> None:
        """Records the drift that the probes show."""
        for name, result in self.results.items():
            if result.probe is not None:
                plans = self.bound(name)
                manifests = {plan.service.name: self._manifest(result, plan) for plan in plans}
                apply_blockers = tuple(map(_as_drift, self.apply_blockers[name]))
                reported = {"driver"} & {found.what for found in apply_blockers}  # with its reason
                settings = self.context.settings[name]
                builders = tuple(builder.name for builder in settings.builders)
                drift = drift_of(result.probe, self.plans[name], manifests, builders, settings.disabled)
                self.drift[name] = (*(found for found in drift if found.what not in reported), *apply_blockers)

    def ask_for_report(self) -> None:
        """Collects the data of a report from every probed host, even if it has failed since."""

        def collect(host: Host) -> None:
            self.reports[host.name] = collect_report(host)

        run = self.context
        asking = [host for host in run.state.inventory if self.results[host.name].probe is not None]
        gevent.joinall([run.state.pool.spawn(run.guarded, collect, host) for host in asking])

    def refresh(self) -> None:
        """Probes and verifies again, over the connections that are still open."""
        for host in self.context.state.inventory:
            if host.connected and not remote.is_open(host):
                host.connected = False
                host.connector.disconnect()
            state_of(host, Answers).by_service.clear()
            self.results[host.name] = HostResult(host.name)
        self.connect_and_probe()
        self.verify()

    def _ask(self, host: Host, deep: bool) -> None:
        differing = {change.role for change in self.results[host.name].changes}
        if deep or differing & ASKED_ROLES:
            self.drift[host.name] += tuple(asked_drift(host, self.plans[host.name], differing, deep))

    def _manifest(self, result: HostResult, plan: BoundPlan) -> dict[str, Any]:
        assert plan.build is not None and result.probe is not None
        build = name_of(plan.build, result.probe.architecture, result.probe.os)
        return dict(release_of(plan, build).manifest)


def _as_drift(found: Finding) -> Drift:
    what: What = "driver" if found.rule == "host-driver" else "gpus" if found.rule.startswith("host-gpu") else "host"
    return Drift(what, found.message, hint=found.hint)
