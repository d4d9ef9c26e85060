"""A run that only looks: what `diff`, `status` and `report` have in common."""

from __future__ import annotations

from typing import Any

import gevent

from rigup.facts.probe import Probe
from rigup.fleet.drift import Drift, What, drift_of
from rigup.fleet.drift_asking import ASKED_ROLES, asked_drift
from rigup.fleet.preflight import foreign
from rigup.fleet.preflight_rig import differences
from rigup.fleet.report_asking import Asked, asked_for_report
from rigup.fleet.result import HostResult
from rigup.fleet.runner import Run, load_provision
from rigup.operations.builds import name_of
from rigup.operations.gpu_binding import bound
from rigup.plan import Finding, Plan


class Examination(Run):
    """As a run, but never with a lease. drift: what differs, by host, once `compare_all` or `note_drift` was called.

    hindrances: by host, what an apply would be refused for there.
    """

    only_looks = True
    drift: dict[str, tuple[Drift, ...]]
    hindrances: dict[str, tuple[Finding, ...]]
    asked: dict[str, Asked]

    def look(self) -> None:
        """Connects to every host and probes it. What speaks against an apply there is drift and no more."""
        self.drift = {name: () for name in self.results}
        self.hindrances, self.asked = {}, {}
        self.connect(take_lease=False)

    def _against(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """Of what an apply is refused for, what leaves nothing to be compared or asked; the rest is noted."""
        found = super()._against(name, probe)
        known = differences(self.plans[name][0].rig, probe) if self.plans[name] else ()  # drift_of tells of these
        strange = foreign(found, probe, self.plans[name])
        self.hindrances[name] = tuple(one for one in found if one not in known and one not in strange)
        return strange

    def compare_all(self, deep: bool = False) -> None:
        """Finds out what apply would change, and everything else that is not as planned.

        deep: hash every file of every checkpoint.
        """
        self.compare()
        self.note_drift()
        self._each(lambda host: self._ask(host, deep))
        for name, result in self.results.items():
            if result.state == "pending":
                result.state = "differs" if self.drift[name] else "unchanged"

    def note_drift(self) -> None:
        """Notes what the probes show."""
        load_provision()
        for name, result in self.results.items():
            if result.probe is not None:
                plans = bound(self.plans[name], result.probe)
                manifests = {plan.service.name: self._manifest(result, plan) for plan in plans}
                hindrances = tuple(map(_as_drift, self.hindrances[name]))
                better_told = {"driver"} & {found.what for found in hindrances}  # with what it is needed for
                drift = drift_of(result.probe, self.plans[name], manifests)
                self.drift[name] = (*(found for found in drift if found.what not in better_told), *hindrances)

    def ask_for_report(self) -> None:
        """Asks every host that can be asked for what a report wants of it, whatever has failed there."""
        asking = [host for host in self.state.inventory if self.results[host.name].probe is not None]
        gevent.joinall([self.state.pool.spawn(self._guarded, self._ask_for_report, host) for host in asking])

    def refresh(self) -> None:
        """Looks again and asks again, over the connections that still stand."""
        for host in self.state.inventory:
            if host.connected and not _stands(host):
                host.connected = False
                host.connector.disconnect()
            host.connector_data.pop("rigup_answers", None)
            self.results[host.name] = HostResult(host.name)
        self.look()
        self.verify()

    def _ask(self, host: Any, deep: bool) -> None:
        differing = {change.role for change in self.results[host.name].changes}
        if deep or differing & ASKED_ROLES:
            self.drift[host.name] += tuple(asked_drift(host, self.plans[host.name], differing, deep))

    def _ask_for_report(self, host: Any) -> None:
        self.asked[host.name] = asked_for_report(host)

    def _manifest(self, result: HostResult, plan: Plan) -> dict[str, Any]:
        from roles.service import release_of

        assert plan.build is not None and result.probe is not None
        build = name_of(plan.build, result.probe.architecture, result.probe.os)
        return dict(release_of(plan, build).manifest)


def _as_drift(found: Finding) -> Drift:
    what: What = "driver" if found.rule == "host-driver" else "gpus" if found.rule.startswith("host-gpu") else "host"
    return Drift(what, found.message, hint=found.hint)


def _stands(host: Any) -> bool:
    """Whether the connection to a host is there, as far as one can tell without asking the host."""
    transport = host.connector.client.get_transport() if host.connector.client else None
    return bool(transport and transport.is_active())
