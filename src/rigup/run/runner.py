"""Runs roles on hosts: connect, probe, compare and, for apply, change and verify.

Each host works through its own operations at its own pace: a build on one does not delay a download on another, and
hosts with different roles do not affect each other. A failed host does not stop the others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, Self

from rigup.connection import pyinfra_internals
from rigup.connection.connections import Connections
from rigup.connection.fact_cache import FactReader, read_only
from rigup.connection.lease import NOBODYS, OURS, Lease, myself
from rigup.errors import HostFailed, HostUnreachable, InputError, Refused
from rigup.facts.probe import Probe
from rigup.host import Host, state_of
from rigup.operations.driver import reboots
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.answer import Answer, Answers
from rigup.operations.service.gpu_binding import BoundNodes, bind
from rigup.operations.service.health import ask_service, expected_of
from rigup.plan import BoundPlan, Finding, Plan
from rigup.preflight.checks import preflight, shared_gpu_notes, uncounted_notes
from rigup.preflight.rig import memory_speed_note
from rigup.preflight.virtualisation import link_notes
from rigup.project.inventory import Project
from rigup.run.audit_log import Recorder
from rigup.run.context import RunContext
from rigup.run.finish import RunFinisher
from rigup.run.multinode.groups import NodeGroups, node_groups_in
from rigup.run.result import Change, HostResult
from rigup.settings import HostSettings
from rigup.toolkit import toolkit_root

if TYPE_CHECKING:
    from rigup.run.multinode.coordinator import GroupCoordinator
    from rigup.run.weights.distribution import TransferSummary


class Run:
    """One run over the hosts of a project. A context manager: leaving it returns leases and closes connections."""

    read_only = False

    def __init__(
        self,
        project: Project,
        plans: dict[str, tuple[Plan, ...]],
        settings: dict[str, HostSettings],
        connections: Connections,
    ) -> None:
        groups = NodeGroups(node_groups_in(plans))
        self.context = RunContext(project, plans, settings, connections, self.read_only, groups)
        self._coordinator: GroupCoordinator | None = None
        self.finisher = RunFinisher(self.context)
        self.break_leases = False
        self.transfers: list[TransferSummary] = []
        self._holder = myself()
        self._previous_holders: dict[str, str] = {}
        self._at_work = ExitStack()

    @property
    def plans(self) -> dict[str, tuple[Plan, ...]]:
        """The plans of each host."""
        return self.context.plans

    @property
    def results(self) -> dict[str, HostResult]:
        """The results so far, by host."""
        return self.context.results

    @property
    def coordinator(self) -> GroupCoordinator | None:
        """Keeps the hosts of node groups in step; None while the run has no groups."""
        if self._coordinator is None and self.context.groups.all:
            from rigup.run.multinode.coordinator import GroupCoordinator  # few runs have any

            self._coordinator = GroupCoordinator(self.context)
        return self._coordinator

    def __enter__(self) -> Self:
        self._at_work.enter_context(pyinfra_internals.at_work(self.context.state))
        return self

    def __exit__(self, *exception: object) -> None:
        self.finisher.finish_run()
        self.context.connections.leave()
        self._at_work.close()

    def connect(self, take_lease: bool) -> None:
        """Connects to every host, probes it, and checks that its plans can run there."""
        pyinfra_internals.set_stage(self.context.state, "connect")
        self.context.each(lambda host: self._connect(host, take_lease))
        if self.coordinator:
            self.coordinator.bind()

    def compare(self, take_lease: bool = False) -> None:
        """Finds out what would change, host by host; changes nothing.

        take_lease: on each host with changes to make, and on each that another run seems to be changing.
        """
        pyinfra_internals.set_stage(self.context.state, "compare")
        provision = self._provision()
        self.context.each(lambda host: self._compare(host, provision, take_lease))
        if self.coordinator:
            self.coordinator.spread()

    def execute(self, names: Collection[str] | None = None) -> None:
        """Executes the changes that `compare` found, then sends every service a real request.

        names: these hosts only, which may have waited for long; may be called again for others.
        """
        self.finisher.recorder = self.finisher.recorder or Recorder(self.context.project, self._holder.who, "apply")
        pyinfra_internals.set_stage(self.context.state, "execute")
        before = set(self.context.changed_elsewhere)
        with self._sharing(names):
            self.context.each(self._execute, names)
        if again := self.context.changed_elsewhere.keys() - before:
            provision = self._provision()
            pyinfra_internals.set_stage(self.context.state, "compare")
            self.context.each(lambda host: self._compare_late(host, provision), again)
            self.execute(again)

    def _provision(self) -> Callable[..., None]:
        """What calls the roles for a host: the toolkit's, and those of the fleet's own around them."""
        provision, own = load_provision(), self.context.project.root / "roles"
        if (own.exists() or own.is_symlink()) and not own.is_dir():
            raise InputError(f"{own}: not a folder", "rename it: rigup reads the fleet's own roles from a folder there")
        if not own.is_dir() or own.samefile(toolkit_root() / "roles"):
            return provision
        from rigup.run.own_roles import with_own_roles  # few fleets have any

        return with_own_roles(provision, self.context.project)

    def bound(self, name: str) -> tuple[BoundPlan, ...]:
        """The plans of a host that was probed, with GPU UUIDs and addresses as far as they are known."""
        return bind(self.plans[name], self.results[name].probe or Probe(), self._nodes(name))

    def _nodes(self, name: str) -> dict[str, BoundNodes]:
        """The nodes of a host's group by service, with addresses; {} before binding, or without a group."""
        return self.coordinator.bound_nodes(name) if self.coordinator else {}

    def _sharing(self, names: Collection[str] | None) -> AbstractContextManager[Any]:
        """Lets hosts that lack the same weights download them together."""
        results = [result for name, result in self.results.items() if names is None or name in names]
        if len(self.results) < 2 or not any(change.role == "weights" for one in results for change in one.changes):
            return nullcontext()
        from rigup.run.weights.distribution import WeightsDistribution  # few runs download weights to several hosts

        return WeightsDistribution(self.context, names, self.transfers)

    def verify(self) -> None:
        """Sends a request to every service of every host; for `status`."""
        self.context.each(self._verify)

    def _connect(self, host: Host, take_lease: bool) -> None:
        report(Progress(host.name, "connect"))
        if self._handshake(host) and take_lease and not self._lease(host):
            self._handshake(host)

    def _handshake(self, host: Host) -> bool:
        """Shakes hands with a host, the first time or again, and checks its plans. Returns whether it takes part."""
        result, handshake = self.results[host.name], self.context.connections.handshake(host)
        if not handshake.probe.os:
            check = f"check that 'ssh {host.name} true' works"
            raise HostFailed(f"{host.name}: no response from the host probe", check)
        again = host.name in self.context.handshakes
        self.context.handshakes[host.name], result.probe = handshake, handshake.probe
        reader = FactReader(host)
        reader.learn(handshake.answers)
        host.connector.facts = reader
        if found := self._blocking_findings(host.name, handshake.probe):
            result.fail("refused", *(InputError(f"{host.name}: {f.message}", f.hint) for f in found))
        elif not again:
            self._note_machine(host.name, handshake.probe)
        return not found

    def _note_machine(self, name: str, probe: Probe) -> None:
        plans, wheelhouse = self.plans[name], self.context.settings[name].packages.wheelhouse is not None
        speed = memory_speed_note(plans[0].rig, probe) if plans else ""
        uncounted = uncounted_notes(probe, plans, wheelhouse)
        shared = shared_gpu_notes(
            probe, plans, self.context.settings[name].remove, self.context.settings[name].disabled
        )
        for note in (*([speed] if speed else ()), *link_notes(plans, probe), *uncounted, *shared):
            report(Progress(name, "log", text=note))

    def _blocking_findings(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """The findings for which the run refuses a host."""
        settings = self.context.settings[name]
        wheelhouse = settings.packages.wheelhouse is not None
        return preflight(probe, self.plans[name], time.time(), settings.remove, settings.disabled, wheelhouse)

    def _lease(self, host: Host) -> bool:
        """Takes the lease. Returns whether no other run can have changed the host since the handshake."""
        lease = Lease(host, self._holder, self.break_leases)
        undisturbed = lease.take() == self.context.handshakes[host.name].lease
        self.context.leases[host.name] = lease
        reboots.afterwards(host, lease.claim_after_reboot)
        return undisturbed

    def _compare(self, host: Host, provision: Callable[..., None], take_lease: bool) -> None:
        report(Progress(host.name, "compare"))
        leased = not take_lease or host.name in self.context.leases
        if not leased and self.context.handshakes[host.name].held:
            leased = True
            if not self._lease(host) and not self._handshake(host):
                return
        self.context.compared.add(host.name)
        self._find_changes(host, provision)
        if not leased and self.results[host.name].changes and not self._lease(host):
            self._compare_again(host, provision)

    def _compare_again(self, host: Host, provision: Callable[..., None]) -> None:
        """Compares again after another run had the host, and discards everything read from it before."""
        pyinfra_internals.forget_operations(self.context.state, host)
        if self._handshake(host):
            self._find_changes(host, provision)

    def _compare_late(self, host: Host, provision: Callable[..., None]) -> None:
        """Like `_compare_again`, when new changes can no longer be shown. Raises Refused if there are any."""
        result = self.results[host.name]
        self._compare_again(host, provision)
        if not set(result.changes) <= set(self.context.changed_elsewhere[host.name]):
            result.changes = []
            raise self._stale_comparison(host, "; its pending changes are now different")

    def _stale_comparison(self, host: Host, more: str = "") -> Refused:
        rebooted = self._previous_holders.get(host.name) == NOBODYS
        what = "the host was rebooted" if rebooted else "another rigup run changed this host"
        return Refused(f"{host.name}: {what} after it was compared{more}", "run the same command again")

    def _find_changes(self, host: Host, provision: Callable[..., None]) -> None:
        result = self.results[host.name]
        nodes, settings = self._nodes(host.name), self.context.settings[host.name]
        member = self.coordinator.member if self.coordinator else None
        provision(self.plans[host.name], result.probe, settings, nodes, member)
        state, order = self.context.state, pyinfra_internals.operations(host)
        changing = [op for op in order if pyinfra_internals.will_change(state, host, op)]
        names = [pyinfra_internals.operation_name(state, op) for op in changing]
        result.changes, result.pending_steps = list(map(Change.of, names)), _steps_of(names)
        result.state = "differs" if result.changes else "pending"

    def _claim(self, host: Host) -> str:
        """Checks that a host can be reached and that this run still holds its lease, like `Lease.claim`."""
        lease = self.context.leases[host.name]
        try:
            return lease.claim()
        except remote.CONNECTION_ERRORS:
            if not remote.reconnect(host):
                raise HostUnreachable(f"{host.name}: no longer reachable", "check that it is running") from None
            return lease.claim()

    def _execute(self, host: Host) -> None:
        result, leased = self.results[host.name], host.name in self.context.leases
        shown, result.changes = result.changes, []
        if leased and (holder := self._claim(host)) != OURS:
            self._previous_holders[host.name] = holder
            self._note_stale(host, shown if holder == NOBODYS else [])
            return
        if not leased and not shown and self._may_finish_unchanged(host):
            finished = self.finisher.finish_unchanged(host)
            if finished.recorded:
                result.state = "unchanged"
                return
            if finished.changed_elsewhere:
                self._lease(host)  # raises if another run holds it
                self._note_stale(host, [])
                return
        if shown:
            self._change(host)
        with read_only():
            self._verify(host)
        result.state = "changed" if result.changes else "unchanged"

    def _note_stale(self, host: Host, shown: list[Change]) -> None:
        """Marks a host to be compared again before it is changed. shown: the changes that are allowed then.

        Raises Refused if it was compared again before, or if the other hosts of its node group rely on the comparison.
        """
        if host.name in self.context.changed_elsewhere or host.name in self.context.groups.of:
            raise self._stale_comparison(host)
        self.context.changed_elsewhere[host.name] = shown

    def _may_finish_unchanged(self, host: Host) -> bool:
        """Whether one command can check all services of a host and finish it; otherwise each service is checked."""
        releases = self.context.handshakes[host.name].probe.releases
        applied = all(plan.service.name in releases for plan in self.plans[host.name])
        return applied and not self.context.groups.all and not jobs.cancelled()

    def _change(self, host: Host) -> None:
        """Executes the operations of a host, unless the run is cancelled or loses its lease."""
        from rigup.run.chains.execution import HostExecution  # a run without changes executes nothing

        HostExecution(self.context, host).run()

    def _verify(self, host: Host) -> None:
        """Sends one short request to each service, except to those that have answered after their start in this run."""
        result = self.results[host.name]
        errors: list[HostFailed] = []
        for plan in self.plans[host.name]:
            if self.read_only and result.probe is not None and result.probe.rests(plan.service.name):
                continue
            try:
                if (answer := self._answer(host, plan)) is not None:
                    result.answers.append(answer)
            except HostFailed as error:
                errors.append(error)
        if errors:
            result.errors += errors[:-1]
            raise errors[-1]

    def _answer(self, host: Host, plan: Plan) -> Answer | None:
        if self.coordinator and plan.nodes:
            return self.coordinator.answer(host, plan, self._request)
        return self._request(host, plan)

    def _request(self, host: Host, plan: Plan) -> Answer:
        """The answer of a service in this run; sends a request if there is none yet. Raises HostFailed."""
        name, probe = plan.service.name, self.results[host.name].probe
        answered = state_of(host, Answers).by_service
        if name in answered:
            self._measure(host, plan)
            return answered[name]
        if probe is not None and name not in probe.releases and name not in probe.damaged:
            raise HostFailed(f"{host.name}: {name} was never applied", "run rigup diff to see what apply would do")
        expected = expected_of(name, probe.releases.get(name, {}) if probe else {})
        return ask_service(host, plan, expected=expected, wait_s=60)

    def _measure(self, host: Host, plan: Plan) -> None:
        """Records how much GPU memory a service uses that this run has started."""
        if plan.memory and not plan.members:
            from rigup.run.measured_memory import after_start  # a run without changes starts nothing

            if found := after_start(host, plan):
                self.results[host.name].memory[plan.service.name] = found


def _steps_of(operations: Collection[str]) -> set[str]:
    if not operations:
        return set()
    from rigup.run.chains.order import step_of  # a run without changes has no steps

    return {step_of(name).name for name in operations}


def load_provision() -> Callable[..., None]:
    """`roles.site.provision` of the toolkit that this package runs from."""
    root = str(toolkit_root())
    if root not in sys.path:
        sys.path.insert(0, root)
    from roles.site import provision

    return provision
