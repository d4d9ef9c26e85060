"""Executes the operations of one host: most in their order, those of steps beside them (see order.py) at the same time.

A step beside others is begun from scratch after a reboot, like after a killed run: its operations continue what they
find. If another step fails it is stopped; what it downloaded stays for the next run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import gevent

from rigup.connection import pyinfra_internals
from rigup.connection.fact_cache import read_only
from rigup.errors import HostFailed, RigupError
from rigup.host import Host
from rigup.operations.apt import commands as apt
from rigup.operations.apt.room import leave_room
from rigup.operations.driver import reboots
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, in_chain, report
from rigup.operations.primitives.steps import error_of
from rigup.preflight.checks import missing_weights, spare_bytes
from rigup.run.chains.estimate import WEIGHTS
from rigup.run.chains.order import Step, may_begin, step_of
from rigup.run.chains.timing import Span, without_reboots
from rigup.run.context import RunContext
from rigup.run.result import Change
from rigup.units import seconds_text

CHECK_SECONDS = 1.0
"""How often a step that waits for another looks whether the run must stop."""


@dataclass
class _BesideStep:
    """A step beside others. todo: its operations that are not done, each with its commands once it has begun."""

    step: Step
    operations: list[str]
    todo: list[tuple[str, list[Any]]] | None = None
    greenlet: Any = None
    error: Exception | None = None
    began: float = 0.0
    bytes: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether it has operations to execute, and can."""
        return self.error is None and self.todo != []


class HostExecution:
    """One execution of all operations that the comparison of a host has found."""

    def __init__(self, context: RunContext, host: Host) -> None:
        self.context, self.host = context, host
        self.state, self.result = context.state, context.results[host.name]
        self.lease = context.leases.get(host.name)
        self.order = pyinfra_internals.operations(host)
        self.steps = {each: step_of(pyinfra_internals.operation_name(self.state, each)) for each in self.order}
        self.made: set[str] = set()
        self.beside: dict[str, _BesideStep] = {}
        for operation, step in self.steps.items():
            if step.beside:
                self.beside.setdefault(step.name, _BesideStep(step, [])).operations.append(operation)

    def run(self) -> None:
        """Executes them. Raises the error of the step that failed first, Cancelled, or Refused for a lost lease."""
        main = [operation for operation in self.order if not self.steps[operation].beside]
        self._prefetch_facts()
        if self.result.probe:
            plans, packages = self.context.plans[self.host.name], self.context.settings[self.host.name].packages
            leave_room(self.host, spare_bytes(self.result.probe, plans, packages.wheelhouse is not None))
        reboots.around(self.host, self._pause, self._resume)
        try:
            for position, operation in enumerate(main):
                self._begin_beside({self.steps[later].name for later in main[position:]})
                self._check(f"before {self._change(operation).step}")
                self._await(self.steps[operation])
                self._carry_out(operation)
            self._begin_beside(())
            self._await(None)
        except BaseException as error:
            others = (each.error for each in self.beside.values() if each.error is not error)
            self.result.errors += [other for other in others if isinstance(other, HostFailed)]
            self._stop_beside()
            raise

    def _check(self, when: str) -> None:
        """Raises Cancelled, Refused if the lease is lost, or the error of a step beside that has failed."""
        if jobs.cancelled():
            raise jobs.Cancelled(f"{self.host.name}: cancelled {when}")
        if self.lease:
            self.lease.check()
        for beside in self.beside.values():
            if beside.error:
                raise beside.error

    def _prefetch_facts(self) -> None:
        """Discards the facts read for the comparison, and reads the same facts again in few commands."""
        reader, order = self.host.connector.facts, self.order
        changing = {each for each in order if pyinfra_internals.will_change(self.state, self.host, each)}
        asked = {operation: list(questions) for operation, questions in reader.asked.items()}

        def forecast() -> Iterator[str]:
            current = pyinfra_internals.being_carried_out(self.host)
            for operation in order[order.index(current) :] if current in order else ():
                yield from asked.get(operation, ())
                if operation in changing:
                    return

        reader.forget()
        reader.forecast = forecast

    def _carry_out(self, operation: str) -> None:
        change, began = self._change(operation), time.monotonic()
        report(Progress(self.host.name, change.role, text=change.step))
        well, changed = False, False
        try:
            well = pyinfra_internals.carry_out(self.state, self.host, operation)
            changed = well and pyinfra_internals.did_change(self.state, self.host, operation)
        finally:
            if changed or not well:  # an operation without changes is part of no step's time
                self._note_time(Span(self.steps[operation].name, began, time.monotonic()))
        if not well:
            words = pyinfra_internals.last_words(self.state, self.host, operation)
            raise self._failure(change, error_of(self.host) or words or "exited without output")
        if changed:
            self._note_made(operation)

    def _begin_beside(self, remaining: Collection[str]) -> None:
        """Begins each step beside others that needs nothing unfinished. remaining: steps of the operations left."""
        unfinished = {*remaining, *(name for name, beside in self.beside.items() if beside.unfinished)}
        for beside in self.beside.values():
            if beside.todo is None and may_begin(beside.step, unfinished):
                self._begin(beside)

    def _begin(self, beside: _BesideStep) -> None:
        """Finds out what is to be done, which reads facts, and begins with it. Services may need the same things."""
        beside.todo = []
        if beside.step.name == WEIGHTS and self.result.probe:
            beside.bytes = missing_weights(self.result.probe, self.context.plans[self.host.name])
        for operation in beside.operations:
            commands = pyinfra_internals.commands(self.state, self.host, operation)
            if commands and not any(commands == others for _, others in beside.todo):
                beside.todo.append((operation, commands))
        self._spawn(beside)

    def _spawn(self, beside: _BesideStep) -> None:
        if beside.todo and beside.error is None:
            beside.began = time.monotonic()
            beside.greenlet = gevent.spawn(self._work, beside)

    def _work(self, beside: _BesideStep) -> None:
        """Executes the operations of a step in a greenlet of its own."""
        assert beside.todo is not None
        try:
            # what it changes on the host, no other step reads
            with pyinfra_internals.at_work_on(self.state, self.host), read_only(), in_chain(beside.step.name):
                while beside.todo:
                    operation, commands = beside.todo[0]
                    change = self._change(operation)
                    report(Progress(self.host.name, change.role, text=change.step))
                    for command in commands:
                        command.carry_out(self.host)
                    beside.todo.pop(0)
                    self._note_made(operation)
                took = seconds_text(time.monotonic() - beside.began)
                report(Progress(self.host.name, beside.step.name, text=f"done in {took}", ended=True))
        except (Exception, gevent.Timeout) as error:
            report(Progress(self.host.name, beside.step.name, chain=beside.step.name, ended=True))
            beside.error = self._failure(self._change(beside.todo[0][0]), error)
            if not isinstance(beside.error, jobs.Cancelled):
                text = f"{beside.error}; the run ends after the step that is under way"
                report(Progress(self.host.name, "log", text=text))
        finally:
            self.host.connector.facts.forget()
            done = beside.bytes if not beside.todo else 0
            self._note_time(Span(beside.step.name, beside.began, time.monotonic(), beside=True, bytes=done))

    def _await(self, step: Step | None) -> None:
        """Waits until everything beside others that a step needs is done; None: all. Raises what stops the run."""
        for name, beside in self.beside.items():
            if step is not None and may_begin(step, {name}):
                continue
            if beside.todo is None:
                self._begin(beside)
            if beside.unfinished:
                report(Progress(self.host.name, step.roles[0] if step else "end", text=f"waiting for {name}"))
                while not beside.greenlet.ready():
                    gevent.joinall([beside.greenlet], timeout=CHECK_SECONDS)
                    self._check(f"before {step.name}" if step else "at the end")
            self._check(f"before {step.name}" if step else "at the end")

    def _pause(self) -> None:
        """Before a reboot: no step beside may run, in the middle of apt least of all."""
        with apt.turn(self.host):
            gevent.killall([beside.greenlet for beside in self.beside.values() if beside.greenlet])

    def _resume(self) -> None:
        for beside in self.beside.values():
            self._spawn(beside)

    def _stop_beside(self) -> None:
        """Ends what runs beside, in order; if the lease is lost it is the other run's, and left alone."""
        running = [beside for beside in self.beside.values() if beside.greenlet and not beside.greenlet.dead]
        greenlets = [beside.greenlet for beside in running]
        if self.lease and self.lease.lost:
            gevent.killall(greenlets)
        elif jobs.cancelled():
            gevent.joinall(greenlets, timeout=jobs.STOP_SECONDS + CHECK_SECONDS)  # each ends by itself
            gevent.killall(greenlets)
        else:
            gevent.killall(greenlets, jobs.Cancelled(f"{self.host.name}: stopped, because another step failed"))

    def _failure(self, change: Change, reason: object) -> Exception:
        """The error to raise for a step that failed."""
        if isinstance(reason, RigupError):
            return reason
        name = self.host.name
        if isinstance(reason, remote.CONNECTION_ERRORS):
            return HostFailed(f"{name}: {change.step}: connection lost", "run the same command again")
        return HostFailed(f"{name}: {change.role}: {change.step}: {reason}")

    def _note_made(self, operation: str) -> None:
        """Adds a change to the result, which lists them in the order of the comparison."""
        self.made.add(operation)
        self.result.changes = [self._change(each) for each in self.order if each in self.made]

    def _note_time(self, span: Span) -> None:
        self.result.spans += without_reboots(span, () if span.beside else reboots.times(self.host))

    def _change(self, operation: str) -> Change:
        return Change.of(pyinfra_internals.operation_name(self.state, operation))
