"""Runs roles over hosts on pyinfra's API: connect, probe, compare, and, for apply, carry out and verify.

Each host goes through its own operations at its own pace (a compile here does not hold up a download there), and its
operations are keyed to it alone, so hosts with different roles in one run are never mixed up. A failure stays its own.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

import gevent
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_state

from rigup.errors import HostFailed, InputError, Refused, RigupError, Unreachable
from rigup.fleet.contact import Contact
from rigup.fleet.early_answers import early_answer
from rigup.fleet.fact_reading import FactReader, harmless
from rigup.fleet.farewell import Leaving
from rigup.fleet.greeting import Greeting
from rigup.fleet.inventory import Project, toolkit_root
from rigup.fleet.lease import NOBODYS, OURS, Lease, myself
from rigup.fleet.preflight import preflight
from rigup.fleet.records import Recorder
from rigup.fleet.result import Change, HostResult
from rigup.fleet.settings import Settings
from rigup.operations import jobs, reboots, remote
from rigup.operations.progress import Progress, report
from rigup.operations.steps import error_of
from rigup.plan import Finding, Plan
from rigup.verify.generation import Answer, ask_service, keep_answer, short_request

if TYPE_CHECKING:
    from rigup.facts.host import Probe
    from rigup.fleet.distribution import Tally
    from rigup.fleet.spanning import Sets


class Run:
    """One run over the hosts of a project. A context manager: leaving it returns leases and closes connections."""

    only_looks = False

    def __init__(
        self,
        project: Project,
        plans: dict[str, tuple[Plan, ...]],
        settings: dict[str, Settings],
        sudo_password: str | None,
        contact: Contact | None = None,
    ) -> None:
        self.project, self.plans, self.settings = project, plans, settings
        self.results = {host.name: HostResult(host.name) for host in project.hosts}
        self.leases: dict[str, Lease] = {}
        self.break_leases = False
        self.holder = myself()
        self.greetings: dict[str, Greeting] = {}
        self.compared: set[str] = set()
        self.disturbed: dict[str, list[Change]] = {}
        self.whose: dict[str, str] = {}
        self.leaving = Leaving(self)
        self.tallies: list[Tally] = []
        self.sets = self._sets()
        self.contact = contact or Contact(project, sudo_password)
        self.state = self.contact.state

    def _sets(self) -> Sets | None:
        """Of hosts that serve together, where there are any."""
        if not any(plan.nodes for plans in self.plans.values() for plan in plans):
            return None
        from rigup.fleet.spanning import Sets, sets_in

        return Sets(sets_in(self.plans), self.plans)

    def __enter__(self) -> Self:
        ctx_state.set(self.state)
        return self

    def __exit__(self, *exception: object) -> None:
        self.leaving.leave_all()
        self.contact.leave()
        ctx_state.reset()

    def connect(self, take_lease: bool) -> None:
        """Connects to every host, probes it, and holds the plan against it."""
        self.state.set_stage(StateStage.Connect)
        self._each(lambda host: self._connect(host, take_lease))
        if self.sets:
            self.sets.bind(self)

    def compare(self, take_lease: bool = False) -> None:
        """Finds out what would change, host by host; changes nothing.

        take_lease: of each host that is to be changed, and of each that somebody else seemed to be changing.
        """
        self.state.set_stage(StateStage.Prepare)
        provision = load_provision()
        self._each(lambda host: self._compare(host, provision, take_lease))
        if self.sets:
            self.sets.spread(self)

    def execute(self, names: Collection[str] | None = None) -> None:
        """Carries out what `compare` found, then asks every service for a real generation.

        names: these hosts only, each of which may have waited for long; may be called again for others.
        """
        self.leaving.recorder = self.leaving.recorder or Recorder(self.project, myself().who, "apply")
        self.state.set_stage(StateStage.Execute)
        self.state.is_executing = True
        before = set(self.disturbed)
        with self._sharing(names):
            self._each(self._execute, names)
        if again := self.disturbed.keys() - before:
            provision = load_provision()
            self.state.is_executing = False
            self._each(lambda host: self._compare_disturbed(host, provision), again)
            self.execute(again)

    def _sharing(self, names: Collection[str] | None) -> AbstractContextManager[Any]:
        """Has hosts that are to get weights share them, where there is somebody to share with."""
        results = [result for name, result in self.results.items() if names is None or name in names]
        if len(self.results) < 2 or not any(change.role == "weights" for one in results for change in one.changes):
            return nullcontext()
        from rigup.fleet.distribution import Distribution

        return Distribution(self, names)

    def verify(self) -> None:
        """Asks every service of every host; for `status`."""
        self._each(self._verify)

    def _each(self, work: Callable[[Any], None], names: Collection[str] | None = None) -> None:
        """Does `work` for all hosts that still take part, side by side; what it raises becomes that host's failure."""
        among = self.results.keys() if names is None else names
        hosts = [host for host in self.state.inventory if host.name in among]
        hosts = [host for host in hosts if self.results[host.name].state in ("pending", "differs")]
        if self.sets:
            hosts = self.sets.begin(self, hosts)
        greenlets = [self.state.pool.spawn(self._guarded, work, host) for host in hosts]
        gevent.joinall(greenlets, raise_error=True)

    def _guarded(self, work: Callable[[Any], None], host: Any) -> None:
        result, began = self.results[host.name], time.monotonic()
        try:
            with ctx_config.use(self.state.config.copy()), ctx_host.use(host):
                work(host)
        except jobs.Cancelled as error:
            result.fail("cancelled", error)
        except Unreachable as error:
            result.fail("unreachable", error)
        except RigupError as error:
            result.fail("failed", error)
        except remote.LOST as error:
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            result.fail("failed", HostFailed(f"{host.name}: connection lost ({what})", "run the same command again"))
        except Exception as error:
            logging.getLogger("rigup").debug("unexpected", exc_info=True)
            result.fail("failed", HostFailed(f"{host.name}: {type(error).__name__}: {error}"))
        finally:
            if self.sets:
                self.sets.leave(host.name, result)
            ctx_host.reset()
            result.seconds += time.monotonic() - began

    def _connect(self, host: Any, take_lease: bool) -> None:
        report(Progress(host.name, "connect"))
        if self._meet(host) and take_lease and not self._lease(host):
            self._meet(host)

    def _meet(self, host: Any) -> bool:
        """Greets a host, again where it has been, and holds the plan against it. Returns whether it takes part."""
        result, greeting = self.results[host.name], self.contact.greeting(host)
        if not greeting.probe.os:
            raise HostFailed(f"{host.name}: the probe did not come back", "can you log in there and run a command?")
        self.greetings[host.name], result.probe = greeting, greeting.probe
        reader = FactReader(host)
        reader.learn(greeting.answers | greeting.services)
        host.connector.facts = reader
        if found := self._against(host.name, greeting.probe):
            result.fail("refused", *(InputError(f"{host.name}: {f.message}", f.hint) for f in found))
        return not found

    def _against(self, name: str, probe: Probe) -> tuple[Finding, ...]:
        """What a host is refused for."""
        return preflight(probe, self.plans[name], time.time(), self.settings[name].remove)

    def _lease(self, host: Any) -> bool:
        """Takes the lease. Returns whether nobody else can have changed the host since the greeting."""
        lease = Lease(host, self.holder, self.break_leases)
        undisturbed = lease.take() == self.greetings[host.name].lease
        self.leases[host.name] = lease
        reboots.afterwards(host, lease.claim_after_reboot)
        return undisturbed

    def _compare(self, host: Any, provision: Callable[..., None], take_lease: bool) -> None:
        report(Progress(host.name, "compare"))
        leased = not take_lease or host.name in self.leases
        if not leased and self.greetings[host.name].held:
            leased = True
            if not self._lease(host) and not self._meet(host):
                return
        self.compared.add(host.name)
        self._find_changes(host, provision)
        if not leased and self.results[host.name].changes and not self._lease(host):
            self._compare_again(host, provision)

    def _compare_again(self, host: Any, provision: Callable[..., None]) -> None:
        """Somebody else has had the host meanwhile: nothing that was read of it counts, nor what came of that."""
        self.state.ops[host] = {}
        host.op_hash_order = []
        host.loop_position = [*host.loop_position, 0]  # pyinfra keeps what it knows of operations by position
        if self._meet(host):
            self._find_changes(host, provision)

    def _compare_disturbed(self, host: Any, provision: Callable[..., None]) -> None:
        """As `_compare_again`, when it is too late to show anything new. Raises Refused where there is."""
        result = self.results[host.name]
        self._compare_again(host, provision)
        if not set(result.changes) <= set(self.disturbed[host.name]):
            result.changes = []
            raise self._was_here(host, ", and what is to be changed there now was not shown")

    def _was_here(self, host: Any, more: str = "") -> Refused:
        what = "it was rebooted" if self.whose.get(host.name) == NOBODYS else "another rigup apply was here"
        return Refused(f"{host.name}: {what} since it was compared{more}", "run the same command again")

    def _find_changes(self, host: Any, provision: Callable[..., None]) -> None:
        result = self.results[host.name]
        shared = {"sets": self.sets} if self.sets else {}
        provision(self.plans[host.name], result.probe, self.settings[host.name], **shared)
        result.changes = [Change.of(self._name(op)) for op in host.op_hash_order if self._meta(host, op).will_change]
        result.state = "differs" if result.changes else "pending"

    def _claim(self, host: Any) -> str:
        """Makes sure that a host which may have waited for long is there, and leased to this run. As `Lease.claim`."""
        lease = self.leases[host.name]
        try:
            return lease.claim()
        except remote.LOST:
            if not remote.reconnect(host):
                raise Unreachable(f"{host.name}: does not answer any more", "is it on?") from None
            return lease.claim()

    def _execute(self, host: Any) -> None:
        result, leased = self.results[host.name], host.name in self.leases
        shown, result.changes = result.changes, []
        if leased and (whose := self._claim(host)) != OURS:
            self.whose[host.name] = whose
            self._note_disturbed(host, shown if whose == NOBODYS else [])
            return
        if not leased and not shown and self._may_end_unchanged(host):
            heard = self.leaving.end_unchanged(host)
            if heard.recorded:
                result.state = "unchanged"
                return
            if heard.disturbed:
                self._lease(host)  # raises where somebody is at work there
                self._note_disturbed(host, [])
                return
        if shown:
            self._change(host)
        with harmless():
            self._verify(host)
        result.state = "changed" if result.changes else "unchanged"

    def _note_disturbed(self, host: Any, shown: list[Change]) -> None:
        """Has a host compared once more before it is carried out. shown: what may be changed there by then.

        Raises Refused where it was compared again before, or other hosts go by what was found there.
        """
        if host.name in self.disturbed or (self.sets and host.name in self.sets.of):
            raise self._was_here(host)
        self.disturbed[host.name] = shown

    def _may_end_unchanged(self, host: Any) -> bool:
        """Whether all of a host's services can be asked at once, as what it needs to end; else it is verified."""
        releases = self.greetings[host.name].probe.releases
        return not (
            self.sets or jobs.cancelled() or any(plan.service.name not in releases for plan in self.plans[host.name])
        )

    def _change(self, host: Any) -> None:
        """Carries out every operation of a host; none once the run was cancelled or has lost its lease."""
        result, lease = self.results[host.name], self.leases.get(host.name)
        self._foresee(host)
        for operation in list(host.op_hash_order):
            if jobs.cancelled():
                raise jobs.Cancelled(f"{host.name}: cancelled before {self._name(operation)}")
            if lease:
                lease.check()
            self._carry_out(host, operation)
            if self._meta(host, operation).did_change():
                result.changes.append(Change.of(self._name(operation)))

    def _foresee(self, host: Any) -> None:
        """Nothing that was read for the comparison counts any more; what it asked is read anew, in few commands."""
        reader, order = host.connector.facts, list(host.op_hash_order)
        changing = {operation for operation in order if self._meta(host, operation).will_change}
        asked = {operation: list(questions) for operation, questions in reader.asked.items()}

        def forecast() -> Iterator[str]:
            current = host.executing_op_hash
            for operation in order[order.index(current) :] if current in order else ():
                yield from asked.get(operation, ())
                if operation in changing:
                    return

        reader.forget()
        reader.forecast = forecast

    def _carry_out(self, host: Any, operation: str) -> None:
        change = Change.of(self._name(operation))
        report(Progress(host.name, change.role, text=change.step))
        if run_host_op(self.state, host, operation):
            return
        reason = error_of(host)
        if isinstance(reason, RigupError):
            raise reason
        if reason is not None and isinstance(reason, remote.LOST):
            raise HostFailed(f"{host.name}: {change.step}: connection lost", "run the same command again") from None
        said = reason or self._last_words(host, operation)
        raise HostFailed(f"{host.name}: {change.role}: {change.step}: {said}")

    def _verify(self, host: Any) -> None:
        """A service that was asked when it started need not be asked again; any other answers one short question."""
        result = self.results[host.name]
        errors: list[HostFailed] = []
        for plan in self.plans[host.name]:
            try:
                if (answer := self._answer(host, plan)) is not None:
                    result.answers.append(answer)
            except HostFailed as error:
                errors.append(error)
        if errors:
            result.errors += errors[:-1]
            raise errors[-1]

    def _answer(self, host: Any, plan: Plan) -> Answer | None:
        return self.sets.answer(self, host, plan) if self.sets and plan.nodes else self.answer_alone(host, plan)

    def answer_alone(self, host: Any, plan: Plan) -> Answer:
        """What a service says, to whoever asked it in this run before or now. Raises HostFailed."""
        name, probe = plan.service.name, self.results[host.name].probe
        answered: dict[str, Answer] = host.connector_data.get("rigup_answers", {})
        if name in answered:
            self._measure(host, plan)
            return answered[name]
        if probe is not None and name not in probe.releases:
            raise HostFailed(f"{host.name}: {name} was never applied here", "rigup diff shows what apply would do")
        if said := early_answer(host, short_request(plan)):
            return keep_answer(host, name, said)
        return ask_service(host, plan, max_tokens=1, wait_s=60)

    def _measure(self, host: Any, plan: Plan) -> None:
        """Notes what a service that this run has started takes of its GPUs."""
        if plan.memory:
            from rigup.fleet.measured_memory import after_start

            if found := after_start(host, plan, self.project.root):
                self.results[host.name].memory[plan.service.name] = found

    def _meta(self, host: Any, operation: str) -> Any:
        return self.state.get_op_data_for_host(host, operation).operation_meta

    def _name(self, operation: str) -> str:
        return str(next(iter(self.state.get_op_meta(operation).names)))

    def _last_words(self, host: Any, operation: str) -> str:
        meta = self._meta(host, operation)
        lines = (
            [line for line in (*meta.stderr_lines, *meta.stdout_lines) if line.strip()] if meta.is_complete() else []
        )
        return lines[-1].strip() if lines else "failed without a word"


def load_provision() -> Callable[..., None]:
    """`roles.site.provision` of the toolkit that this package runs from."""
    root = str(toolkit_root())
    if root not in sys.path:
        sys.path.insert(0, root)
    from roles.site import provision

    return provision


def installable_builds() -> set[tuple[str, str]]:
    """The (engine, build method) pairs that the toolkit has a role for."""
    load_provision()
    from roles.site import ENGINES

    return set(ENGINES)
