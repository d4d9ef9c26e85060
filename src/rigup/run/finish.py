"""How a run finishes with its hosts: it records what was done, on the host and here, and releases leases.

A host without changes is finished with one command that sends a request to each service and checks that the host has
not changed since the handshake. This run has no lease, so the host itself checks whether another run took one since
then. It appends the record only if none did and every service has answered.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import gevent

from rigup.connection.connections import LEAVE_SECONDS
from rigup.connection.fact_batch import digest
from rigup.connection.fact_cache import read_only
from rigup.connection.handshake import remembering
from rigup.connection.lease import stamp
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.service.health import ANSWER_SECONDS, ASK, expected_of, keep_answer, request_of
from rigup.operations.service.reply import Reply, read_reply
from rigup.run.audit_log import ApplyRecord, Recorder, appending, keep_here, served
from rigup.run.context import RunContext
from rigup.run.result import HostResult

MARK = "##rigup-finish##"
_END = "rigup-ends-here-5f1c"
_ANSWERED = '{"state": "answered"'


class FinishResult(NamedTuple):
    """replies: of `ask.py`, by service. changed_elsewhere: another run had the lease since the handshake.

    recorded: all services answered, and the record was appended.
    """

    replies: dict[str, Reply]
    changed_elsewhere: bool
    recorded: bool


class RunFinisher:
    """Finishes a run with its hosts.

    recorder: None if nothing was executed, so that there is nothing to record. without_lease: record it also on hosts
    of which the run has no lease.
    """

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.recorder: Recorder | None = None
        self.without_lease = False
        self._recorded: dict[str, ApplyRecord] = {}

    def finish_run(self) -> None:
        """Appends the records on the hosts, releases the leases, and keeps the records here."""
        run = self.context
        names = (run.leases.keys() | run.compared) - self._recorded.keys()
        names |= run.handshakes.keys() if self.without_lease else set()
        hosts = [host for host in run.state.inventory if host.name in names]
        gevent.joinall([run.state.pool.spawn(self._finish, host) for host in hosts])
        if self.recorder:
            worked_on = [name for name, result in run.results.items() if result.state != "not begun"]
            keep_here(self._record(self.recorder, run.results[name]) for name in worked_on)

    def finish_unchanged(self, host: Host) -> FinishResult:
        """Finishes a host without a lease: sends a request to its services, keeps the answers, appends the record."""
        run = self.context
        result, handshake = run.results[host.name], run.handshakes[host.name]
        assert self.recorder is not None
        record = self._record(self.recorder, replace(result, state="unchanged"))
        releases = handshake.probe.releases
        requests = {
            name: request_of(plan, expected_of(name, releases[name]))
            for plan in run.plans[host.name]
            if (name := plan.service.name)
        }
        finished = finish_host(host, handshake.lease, requests, self._last(host, record))
        if finished.recorded:
            self._recorded[host.name] = record
            result.answers += [keep_answer(host, name, finished.replies[name]) for name in requests]
        return finished

    def _finish(self, host: Host) -> None:
        """Releases the lease; after an apply also appends the record and stores the requests for the next handshake."""
        lease, result = self.context.leases.get(host.name), self.context.results[host.name]
        if self.recorder is None or result.state == "not begun":
            if lease:
                lease.release()
            return
        last = self._last(host, self._record(self.recorder, result))
        text, stdin = "; ".join(text for text, _ in last), "".join(stdin for _, stdin in last)
        if lease:
            lease.release(text, stdin)
            return
        with suppress(*remote.CONNECTION_ERRORS):
            remote.run(host, "sh", "-c", text, stdin=stdin, timeout=LEAVE_SECONDS)

    def _last(self, host: Host, record: ApplyRecord) -> tuple[tuple[str, str], ...]:
        """The last commands on a host: sh, each with its standard input."""
        asked = host.connector.facts.questions() if host.connector.facts else []
        news = {*map(digest, asked)} - self.context.handshakes[host.name].answers.keys()
        return (appending(record), remembering(asked)) if news else (appending(record),)

    def _record(self, recorder: Recorder, result: HostResult) -> ApplyRecord:
        services = {plan.service.name: served(plan) for plan in self.context.plans[result.host]}
        return self._recorded.get(result.host) or recorder.record(result, services)


def finish_host(
    host: Host, seen: str, requests: dict[str, dict[str, Any]], last: tuple[tuple[str, str], ...]
) -> FinishResult:
    """Runs the last command on a host without changes. Raises the errors of `remote.run`.

    seen: the lease's stamp in the handshake. requests: to `ask.py`, by service. last: sh with its standard input, run
    if every service answers.
    """
    with read_only():
        seconds = (ANSWER_SECONDS + 30) * (len(requests) + 1)
        output = remote.run(host, "sh", "-s", stdin="".join(_script(seen, requests, last)), timeout=seconds)
    replies: dict[str, Reply] = {}
    ends: set[str] = set()
    for line in output.stdout.splitlines():
        mark, _, rest = line.partition(" ")
        key, _, text = rest.partition(" ")
        if mark == MARK and key == "answer":
            name, _, answer = text.partition(" ")
            replies[name] = read_reply(answer) if answer.startswith("{") else Reply(state="failed", why=answer[:300])
        elif mark == MARK:
            ends.add(key)
    answered = all(name in replies and replies[name].state == "answered" for name in requests)
    return FinishResult(replies, "changed" in ends, "recorded" in ends and answered)


def _script(seen: str, requests: dict[str, dict[str, Any]], last: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield "right=yes\n"
    for name, request in requests.items():
        yield f"reply=$({_with(shlex.join(ASK), json.dumps(request))})\n"
        yield f"printf '%s\\n' \"{MARK} answer {name} $reply\"\n"
        yield f"case $reply in {shlex.quote(_ANSWERED)}*) ;; *) right=;; esac\n"
    yield f'if [ "$({stamp()})" != {shlex.quote(seen)} ]; then echo "{MARK} changed"; exit; fi\n'
    yield '[ "$right" ] || exit 0\n'
    for text, stdin in last:
        yield f"{_with(f'{{ {text}; }}', stdin)}\n"
    yield f'echo "{MARK} recorded"\n'


def _with(text: str, stdin: str) -> str:
    """sh with these lines on its standard input."""
    return f"{text} <<'{_END}'\n{stdin.removesuffix(chr(10))}\n{_END}\n"
