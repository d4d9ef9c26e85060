"""Releases of a service that spans several hosts: all hosts change together, or all roll back together.

Every host stages its release before any stops. The head stops first, because requests in flight need all hosts until
they end. Then the others stop and start, the head starts, and rigup checks it. If a step fails on one host, all
reachable hosts roll back to releases that belong together: with the same group digest, or from before the service
spanned hosts. If there are none, they stop. Ctrl-C ends waiting, but not a switch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import gevent

from rigup import layout
from rigup.errors import HostFailed, RigupError
from rigup.host import Host, state_of
from rigup.operations.multinode.barrier import Barrier, BarrierState
from rigup.operations.multinode.peers import restarted, trouble, without_connection
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.units import stop_limit
from rigup.operations.service.history import RetainedRelease, earlier, group_digest_of, read_kept
from rigup.operations.service.releases import (
    Check,
    CheckEarlier,
    mark_healthy,
    note_expected,
    remove_unit,
    stage,
    stays,
    switch,
)
from rigup.operations.service.start_log import explained
from rigup.systemd.release import ServiceRelease

ANSWERED, ANSWERED_AGAIN = "answered", "answered again"
POLL_SECONDS = 2.0
LOST_SECONDS = 60.0


@dataclass
class StartedServices:
    """The services that this run has started on a host."""

    services: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class MemberState:
    """A host's state at the start of a change.

    now: the current release. earlier: digests by number of the releases that have answered, the preferred one last.
    held: whether the release to switch to is the current one, and has answered before.
    """

    now: str | None
    earlier: dict[str, str]
    held: bool = False


def belonging_together(states: Mapping[str, MemberState]) -> dict[str, str | None]:
    """The release to roll back to, by host: the common current one, else the newest digest that all hosts have.

    Releases from before the service spanned hosts count as common. None for a host without one: it stops.
    """
    running = {state.earlier.get(state.now or "") for state in states.values()}
    digests = dict.fromkeys(state.earlier[number] for state in states.values() for number in reversed(state.earlier))
    shared = [digest for digest in digests if digest and all(digest in s.earlier.values() for s in states.values())]
    if "" in running and running <= {"", None}:
        digest = ""
    elif len(running) == 1 and (of_all := next(iter(running))):
        digest = of_all
    elif shared:
        digest = shared[0]
    elif running == {None}:
        digest = ""
    else:
        return dict.fromkeys(states)
    return {name: _newest(state, digest) for name, state in states.items()}


def _newest(state: MemberState, digest: str) -> str | None:
    if state.now is not None and state.earlier.get(state.now) == digest:
        return state.now
    return next((number for number in reversed(state.earlier) if state.earlier[number] == digest), None)


@dataclass(frozen=True)
class GroupMember:
    """A host's part. hosts: of the service, by rank; rank: this host's. addresses: of the other hosts, by name.

    watch_port: the port on which the head listens for the others; None if it does not listen.
    check_earlier: checks a restored release. read_only: compares only, so that lost hosts are not an error.
    """

    service: str
    barrier: Barrier
    hosts: tuple[str, ...]
    rank: int
    addresses: Mapping[str, str]
    watch_port: int | None
    check_earlier: CheckEarlier
    read_only: bool = False

    @property
    def named(self) -> str:
        """The service and its hosts, for messages."""
        return f"{self.service} spans {listed(self.hosts)}"

    def agreed(self, host: Host, needed: bool) -> bool:
        """See `GroupMembership`. Raises HostFailed if a host has failed, or has finished without a change."""
        state = self.barrier.wait(host.name, self._step("needed"), needed, self.hosts)
        failed = {name: why for name, why in state.left.items() if why}
        if failed and not self.read_only:
            raise self.not_begun(host.name, failed)
        if any(state.values.values()) and state.left and not self.read_only:
            raise HostFailed(
                f"{host.name}: {self.named}, but changed after the comparison",
                "run the same command again",
            )
        return any(state.values.values())

    def activate(
        self, host: Host, release: ServiceRelease | Callable[[Any], ServiceRelease], check: Check, existing: str | None
    ) -> None:
        """See `GroupMembership`."""
        wanted = release if isinstance(release, ServiceRelease) else release(host)
        number, _ = stage(host, wanted, existing)
        self.change(host, number, check, f"starting {self.service}, release {number}")
        if existing:
            note_expected(host, wanted, number)
        if self.rank:
            check(host)  # the steps after the head's health check

    def change(self, host: Host, number: str, check: Check, words: str) -> None:
        """Switches this host to a staged release, together with all other hosts, and checks the head.

        words: the progress text. Raises HostFailed with the outcome, on every host, if any host fails.
        """
        state = self.wait(host.name, "staged", _state_of(host, self.service, number))
        if state.left:
            raise self.not_begun(
                host.name, {name: why or f"{name}: no longer takes part" for name, why in state.left.items()}
            )
        jobs.check_cancelled(f"{host.name}: cancelled before {words}")
        report(Progress(host.name, "service", text=words))
        switching = _GroupSwitch(self, host, belonging_together(state.values), state.values, time.monotonic())
        failed = switching.forward(number, check)
        if not failed:
            mark_healthy(host, self.service, number)
            state_of(host, StartedServices).services.add(self.service)
            return
        jobs.check_cancelled(f"{host.name}: {self.service}: cancelled during the health check")
        if all(each.held for each in state.values.values()):
            raise switching.stay(failed, number)
        raise switching.back(failed)

    def wait(self, host: str, step: str, what: Any) -> BarrierState:
        """Publishes a value for a step of this service and waits for the other hosts."""
        return self.barrier.wait(host, self._step(step), what, self.hosts)

    def peek(self, step: str) -> BarrierState:
        """The values published for a step of this service so far."""
        return self.barrier.peek(self._step(step))

    def given_up(self) -> str:
        """See `GroupMembership`: the failures of other hosts since all were started."""
        states = [self.peek(step) for step in (ANSWERED, ANSWERED_AGAIN)]
        return listed([why for each in states for why in (*each.values.values(), *each.left.values()) if why])

    def not_begun(self, host: str, failed: Mapping[str, str]) -> HostFailed:
        """The error of a healthy host if others failed before anything was stopped."""
        problem = f"{host}: {self.named}; none of them was stopped: {listed(failed.values())}"
        return HostFailed(problem, "fix that, then run the same command again")

    def _step(self, step: str) -> str:
        return f"{self.service}: {step}"


def _state_of(host: Host, service: str, number: str) -> MemberState:
    """number: the release to switch to, which does not count."""
    kept: tuple[RetainedRelease, ...] = read_kept(host).get(service, ())
    now = next((release.number for release in kept if release.current), None)
    likely = earlier(kept, now)
    good = [*(r for r in kept if r.answered and r not in likely and r.number != now), *likely]
    good += [r for r in kept if r.answered and r.number == now]
    digests = {
        str(release.number): group_digest_of(release.manifest) for release in good if str(release.number) != number
    }
    held = any(release.current and release.answered and str(release.number) == number for release in kept)
    return MemberState(None if now is None else str(now), digests, held)


@dataclass
class _GroupSwitch:
    """One host's steps of a switch. earlier: the release that each host rolls back to. began: by time.monotonic().

    way_back: the hint of this host's own error.
    """

    part: GroupMember
    host: Host
    earlier: dict[str, str | None]
    states: Mapping[str, MemberState]
    began: float
    way_back: str = ""

    def forward(self, number: str, check: Check) -> dict[str, str]:
        """Switches to the new release. Returns failures by host; {} once the head has answered."""
        rank = self.part.rank
        return (
            self._step("head stopped", lambda: None if rank else self._stop())
            or self._step("stopped", lambda: self._stop() if rank else None)
            or self._step("others started", lambda: self._start(number) if rank else None)
            or self._step("head started", lambda: None if rank else self._start(number))
            or self._step(ANSWERED, lambda: self._watch(ANSWERED) if rank else self._ask(check))
        )

    def back(self, failed: Mapping[str, str]) -> HostFailed:
        """Rolls all reachable hosts back to the earlier release; returns the error that describes the outcome."""
        number, rank = self.earlier.get(self.host.name), self.part.rank
        report(Progress(self.host.name, "service", text=f"rolling back to release {number}" if number else "stopping"))
        lost = self._step("head stopped again", lambda: None if rank else self._stop())
        lost |= self._step("stopped again", lambda: self._stop() if rank else None)
        lost |= self._step("others back", lambda: self._put_back(number) if rank else None)
        lost |= self._step("head back", lambda: None if rank else self._put_back(number))
        if not lost and any(self.earlier.values()):
            lost = self._step(ANSWERED_AGAIN, lambda: self._answer_again(number))
        return self._failed(failed, self._outcome_text(number, lost))

    def stay(self, failed: Mapping[str, str], number: str) -> HostFailed:
        """Leaves the release, which has answered before, as it is on each host; returns the error."""
        unit = layout.unit_name(self.part.service)
        with suppress(*remote.CONNECTION_ERRORS):
            remote.run(self.host, "systemctl", "start", "--no-block", unit)  # a host may have failed before its start
        return self._failed(failed, stays(number))

    def _failed(self, failed: Mapping[str, str], outcome: str) -> HostFailed:
        message = f"{listed(failed.values())}; {outcome}"
        hint = f"on {listed(failed)}: journalctl -u {layout.unit_name(self.part.service)}"
        prefix = "" if message.startswith(f"{self.host.name}: ") else f"{self.host.name}: "
        return HostFailed(prefix + message, self.way_back or hint)

    def _step(self, step: str, work: Callable[[], None]) -> dict[str, str]:
        """Runs this host's part of a step and waits for the others. Returns failures by host."""
        why = ""
        try:
            work()
        except (RigupError, *remote.CONNECTION_ERRORS) as error:
            why = remote.words_of(self.host, error)
            if isinstance(error, HostFailed):
                self.way_back = error.hint or self.way_back
                why = explained(self.host, self.part.service, self.began, why)
        state = self.part.wait(self.host.name, step, why)
        failed = {name: problem for name, problem in state.values.items() if problem}
        return failed | {name: problem or f"{name}: no longer takes part" for name, problem in state.left.items()}

    def _stop(self) -> None:
        unit = layout.unit_name(self.part.service)  # a unit that does not exist yet needs no stop
        remote.run(self.host, "systemctl", "stop", unit, timeout=stop_limit(self.host))

    def _start(self, number: str) -> None:
        switch(self.host, self.part.service, number)
        if why := trouble(self.host, layout.unit_name(self.part.service)):
            raise HostFailed(f"{self.host.name}: {self.part.service}: {why}")

    def _put_back(self, number: str | None) -> None:
        if number is None:
            remove_unit(self.host, self.part.service)
        else:
            switch(self.host, self.part.service, number)

    def _ask(self, check: Check) -> None:
        """Health-checks the head. If it fails, the error names the hosts that have not joined."""
        try:
            check(self.host)
        except HostFailed as error:
            if self.part.given_up() or not (missing := self._not_joined()):
                raise
            raise HostFailed(f"{error.message}; not joined: {listed(missing)}", error.hint) from None

    def _not_joined(self) -> tuple[str, ...]:
        with suppress(RigupError, *remote.CONNECTION_ERRORS):
            if restarted(self.host, layout.unit_name(self.part.service)):
                return ()  # the head itself does not start
            return without_connection(self.host, self.part.addresses, self.part.watch_port)
        return ()

    def _watch(self, step: str) -> None:
        """Watches this host's unit until the head's health check ends. A short connection loss is tolerated."""
        unit, responded = layout.unit_name(self.part.service), time.monotonic()
        head = self.part.hosts[0]
        while head not in (state := self.part.peek(step)).values and head not in state.left:
            try:
                why = trouble(self.host, unit)
                responded = time.monotonic()
            except remote.CONNECTION_ERRORS:
                why = ""
                remote.reconnect(self.host)
            if time.monotonic() - responded > LOST_SECONDS:
                why = f"no response for {LOST_SECONDS:.0f} s"
            if why:
                raise HostFailed(f"{self.host.name}: {self.part.service}: {why}")
            gevent.sleep(POLL_SECONDS)

    def _answer_again(self, number: str | None) -> None:
        """Checks restored releases: the head's for the whole group, or each host's own if it serves alone."""
        digest = self.states[self.host.name].earlier.get(number or "", "")
        if number is None or (self.part.rank and digest):
            return
        kept = {str(release.number): release for release in read_kept(self.host).get(self.part.service, ())}
        self.part.check_earlier(self.host, kept[number].manifest)

    def _outcome_text(self, number: str | None, lost: Mapping[str, str]) -> str:
        name = self.host.name
        if lost:
            state = f"{name}: connection lost" if name in lost else f"{name} was stopped"
            state = f"release {number} was restored on {name}" if number and name not in lost else state
            return f"{state}, with errors: {listed(lost.values())}"
        if not any(self.earlier.values()):
            return f"{listed(self.part.hosts)} were stopped; no earlier common release to roll back to"
        numbers = [f"{self.earlier[host] or 'none'} on {host}" for host in self.part.hosts]
        return f"rolled back to release {listed(numbers)}, which answers"


def listed(words: Iterable[str]) -> str:
    """Joins texts for a sentence, without duplicates."""
    return " and ".join(dict.fromkeys(words))
