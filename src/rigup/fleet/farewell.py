"""How a run leaves its hosts: the record of what was done, there and here, and the last thing said to each.

One that needs no change is asked, all in one command, whether what it serves answers and whether it is still as it was
greeted. Nobody had the lease for this run, so the host itself says at the end whether anybody has had it since; only if
not, and if every service has answered, it puts the record of that on file.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gevent

from rigup.fleet.contact import LEAVE_SECONDS
from rigup.fleet.early_answers import early_answer, to_remember
from rigup.fleet.fact_batch import digest
from rigup.fleet.fact_reading import harmless
from rigup.fleet.greeting import remembering
from rigup.fleet.lease import stamp
from rigup.fleet.records import Record, Recorder, appending, keep_here, served
from rigup.operations import remote
from rigup.verify.generation import ANSWER_SECONDS, ASK, keep_answer, short_request

if TYPE_CHECKING:
    from rigup.fleet.runner import Run

MARK = "##rigup-farewell##"
_END = "rigup-ends-here-5f1c"
_ANSWERED = '{"state": "answered"'


@dataclass(frozen=True)
class Farewell:
    """What came back.

    said: what `ask.py` said, by service. disturbed: somebody has had the lease. recorded: all is well, and on record.
    """

    said: dict[str, dict[str, Any]]
    disturbed: bool
    recorded: bool


class Leaving:
    """How one run leaves its hosts. recorder: None where nothing was carried out, and there is nothing to record."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.recorder: Recorder | None = None
        self._recorded: dict[str, Record] = {}

    def leave_all(self) -> None:
        """Gives every host back, with its record, and keeps the records here."""
        run = self.run
        met = run.leases.keys() | run.compared
        leaving = [host for host in run.state.inventory if host.name in met and host.name not in self._recorded]
        gevent.joinall([run.state.pool.spawn(self._leave, host) for host in leaving])
        if self.recorder:
            worked_on = [name for name, result in run.results.items() if result.state != "not begun"]
            keep_here(self._record(self.recorder, name) for name in worked_on)

    def end_unchanged(self, host: Any) -> Farewell:
        """Of a host without a lease: whether it is as it should be and has that on record, or was disturbed.

        Its services are asked, and what they answered is kept.
        """
        run = self.run
        result, greeting = run.results[host.name], run.greetings[host.name]
        assert self.recorder is not None
        result.state = "unchanged"
        record = self._record(self.recorder, host.name)
        last = self._last(self.recorder, host)
        result.state = "pending"
        requests = {plan.service.name: short_request(plan) for plan in run.plans[host.name]}
        early = {name: said for name, request in requests.items() if (said := early_answer(host, request))}
        heard = say_farewell(host, greeting.lease, {name: requests[name] for name in requests.keys() - early}, last)
        if heard.recorded:
            self._recorded[host.name] = record
            said = early | heard.said
            result.answers += [keep_answer(host, name, said[name]) for name in requests]
        return heard

    def _leave(self, host: Any) -> None:
        """Gives the host back; after an apply with a record of it, and with what it was asked where that is news."""
        lease = self.run.leases.get(host.name)
        if self.recorder is None or self.run.results[host.name].state == "not begun":
            if lease:
                lease.release()
            return
        last = self._last(self.recorder, host)
        text, stdin = "; ".join(text for text, _ in last), "".join(stdin for _, stdin in last)
        if lease:
            lease.release(text, stdin)
            return
        with suppress(*remote.LOST):
            remote.ask(host, "sh", "-c", text, stdin=stdin, timeout=LEAVE_SECONDS)

    def _last(self, recorder: Recorder, host: Any) -> tuple[tuple[str, str], ...]:
        """What is left behind on a host: sh, each with its standard input."""
        greeting, record = self.run.greetings[host.name], appending(self._record(recorder, host.name))
        asked = host.connector.facts.questions() if host.connector.facts else []
        services = to_remember(short_request(plan) for plan in self.run.plans[host.name] if not plan.nodes)
        news = {*map(digest, asked)} - greeting.answers.keys() or services.keys() != greeting.services.keys()
        return (record, remembering(asked, services.values())) if news else (record,)

    def _record(self, recorder: Recorder, name: str) -> Record:
        services = {plan.service.name: served(plan) for plan in self.run.plans[name]}
        return self._recorded.get(name) or recorder.record(self.run.results[name], services)


def say_farewell(
    host: Any, seen: str, requests: dict[str, dict[str, Any]], last: tuple[tuple[str, str], ...]
) -> Farewell:
    """Says it. Raises as `remote.ask` does.

    seen: the stamp that the greeting found. requests: to `ask.py`, by service. last: sh with its standard input, run on
    the host where all is well.
    """
    with harmless():
        seconds = (ANSWER_SECONDS + 30) * (len(requests) + 1)
        output = remote.ask(host, "sh", "-s", stdin="".join(_script(seen, requests, last)), timeout=seconds)
    said: dict[str, dict[str, Any]] = {}
    ends: set[str] = set()
    for line in output.stdout.splitlines():
        mark, _, rest = line.partition(" ")
        key, _, text = rest.partition(" ")
        if mark == MARK and key == "answer":
            name, _, answer = text.partition(" ")
            said[name] = json.loads(answer) if answer.startswith("{") else {"state": "failed", "why": answer}
        elif mark == MARK:
            ends.add(key)
    return Farewell(said, "disturbed" in ends, "recorded" in ends)


def _script(seen: str, requests: dict[str, dict[str, Any]], last: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield "right=yes\n"
    for name, request in requests.items():
        yield f"said=$({_with(shlex.join(ASK), json.dumps(request))})\n"
        yield f"printf '%s\\n' \"{MARK} answer {name} $said\"\n"
        yield f"case $said in {shlex.quote(_ANSWERED)}*) ;; *) right=;; esac\n"
    yield f'if [ "$({stamp()})" != {shlex.quote(seen)} ]; then echo "{MARK} disturbed"; exit; fi\n'
    yield '[ "$right" ] || exit 0\n'
    for text, stdin in last:
        yield f"{_with(f'{{ {text}; }}', stdin)}\n"
    yield f'echo "{MARK} recorded"\n'


def _with(text: str, stdin: str) -> str:
    """sh with this on its standard input, which is lines."""
    return f"{text} <<'{_END}'\n{stdin.removesuffix(chr(10))}\n{_END}\n"
