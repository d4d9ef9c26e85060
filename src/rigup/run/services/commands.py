"""A command of the user's on all hosts of a run at once: its output as it comes, and how it ended on each."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gevent
from gevent.event import Event

from rigup.connection.command_lines import run_line_by_line
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.printable import one_line
from rigup.report.redaction import Redactor
from rigup.run.context import RunContext
from rigup.run.result import Change, HostResult

KEPT_BYTES = 1 << 24
"""Of each stream of a host, for the JSON document."""

LONGEST_RECORD = 1000
"""Of a command, in characters."""

# called with a host's name, a line, and whether it comes from standard error
Show = Callable[[str, str, bool], None]


@dataclass
class Said:
    """What a command printed, each stream as lines, and its exit status; None while it runs or if it never ended."""

    status: int | None = None
    streams: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    left: int = KEPT_BYTES

    def keep(self, line: str, complaint: bool) -> None:
        """Keeps a line, up to the limit."""
        self.left -= len(line) + 1
        if self.left >= 0:
            self.streams[complaint].append(line)


class Commands:
    """One command on every host of a run that was reached. Its record has the command without secrets, on one line."""

    def __init__(self, context: RunContext, words: tuple[str, ...], root: bool, show: Show) -> None:
        self._context, self._root, self._show = context, root, show
        self._words = ("sh", "-c", words[0]) if len(words) == 1 else words
        redacted = shlex.join(Redactor(()).value(words)) if len(words) > 1 else Redactor(()).text(words[0])
        self._recorded = one_line(redacted)[:LONGEST_RECORD]
        self.said: dict[str, Said] = {}

    def run(self, ended: Event) -> None:
        """Runs it everywhere until it has ended, or `ended` is set; a status other than 0 fails the host."""
        context = self._context
        hosts = [host for host in context.state.inventory if context.results[host.name].state == "pending"]
        working = [gevent.spawn(partial(context.guarded, self._run, host)) for host in hosts]
        try:
            while not all(each.ready() for each in working) and not ended.wait(0.05):
                pass
        finally:
            gevent.killall(working)

    def as_json(self, result: HostResult) -> dict[str, Any]:
        """What became of one host, in plain values."""
        said = self.said.get(result.host, Said())
        out, err = ("".join(f"{line}\n" for line in lines) for lines in said.streams)
        return {
            "host": result.host,
            "state": result.state,
            "status": said.status,
            "stdout": out,
            "stderr": err,
            "truncated": said.left < 0,
            "errors": [error.as_json() for error in result.errors],
        }

    def _run(self, host: Host) -> None:
        self._context.results[host.name].changes = [Change("exec", self._recorded)]
        said = self.said[host.name] = Said()

        def take(line: str, complaint: bool) -> None:
            said.keep(line, complaint)
            self._show(host.name, line, complaint)

        out, err = partial(take, complaint=False), partial(take, complaint=True)
        said.status = run_line_by_line(host, self._words, out, err, self._root)
        if said.status:
            raise HostFailed(f"{host.name}: the command exited with {said.status}")
