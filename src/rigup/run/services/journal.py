"""The journal of services over hosts: entries as journalctl prints them in JSON, merged by their time."""

from __future__ import annotations

import heapq
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import gevent
from gevent.event import Event
from gevent.queue import Empty, Queue

from rigup import layout
from rigup.connection.command_lines import run_line_by_line
from rigup.errors import HostFailed
from rigup.facts.bounds import LAST_SECOND
from rigup.host import Host
from rigup.run.context import RunContext
from rigup.run.hosts_run import GATEWAY

UNITS = ("UNIT", "OBJECT_SYSTEMD_UNIT", "_SYSTEMD_UNIT")
"""Fields of an entry that may name the unit: the first two where systemd itself tells of it."""
FIELDS = ",".join((*UNITS, "MESSAGE", "PRIORITY"))
AHEAD = 1000
"""Entries that may be read of a host before they are printed."""
SETTLE_SECONDS = 0.5
"""How long a new entry waits for earlier ones of other hosts."""
INFORMATION = 6


@dataclass(frozen=True)
class JournalQuery:
    """Which entries: of these services, () for all; the last `lines` of each host. since: as journalctl takes it."""

    services: tuple[str, ...] = ()
    lines: int | None = None
    since: str | None = None
    follow: bool = False


@dataclass(frozen=True, order=True)
class Entry:
    """One entry. time_us: microseconds since 1970 by the host's clock. priority: 0 (emergency) to 7 (debug)."""

    time_us: int
    host: str
    service: str
    priority: int
    message: str

    def as_json(self) -> dict[str, Any]:
        """In plain values."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.time_us // 10**6))
        return {
            "schema": 1,
            "time": f"{when}.{self.time_us % 10**6:06}+00:00",
            "host": self.host,
            "service": self.service,
            "priority": self.priority,
            "message": self.message,
        }


def read_entry(host: str, line: str) -> Entry | None:
    """Parses a line of `journalctl --output=json`. None for a line that is not an entry of one of rigup's units."""
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, StopIteration):
        fields = json.loads(line)
        units = [str(fields.get(name)) for name in UNITS]
        service = next(unit[len("rigup-") : -len(".service")] for unit in units if _is_rigups(unit))
        when = int(fields["__REALTIME_TIMESTAMP"])
        priority = int(fields.get("PRIORITY") or INFORMATION)
        if 0 <= when <= LAST_SECOND * 10**6 and 0 <= priority <= 7:
            return Entry(when, host, service, priority, _text(fields.get("MESSAGE")))
    return None


def _is_rigups(unit: str) -> bool:
    return unit.startswith("rigup-") and unit.endswith(".service")


def _text(message: Any) -> str:
    """A message: journalctl writes one that is not UTF-8 as a list of bytes, and null for one that is too long."""
    if message is None:
        return "(too long for the journal's JSON)"
    return bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)


def words_for(units: list[str], query: JournalQuery) -> tuple[str, ...]:
    """The command that prints the entries of these units."""
    return (
        *("journalctl", "--no-pager", "--quiet", "--all", "--output=json", f"--output-fields={FIELDS}"),
        *((f"--lines={query.lines}",) if query.lines is not None else ()),
        *((f"--since={query.since}",) if query.since is not None else ()),
        *(("--follow",) if query.follow else ()),
        *(f"--unit={unit}" for unit in units),
    )


class Journal:
    """The entries of all hosts that a run has reached. Leaving it closes the commands on the hosts."""

    def __init__(self, context: RunContext, query: JournalQuery) -> None:
        self._context, self._query = context, query
        self._queues: dict[str, Queue] = {}
        self._readers: list[Any] = []

    def __enter__(self) -> Journal:
        for host in self._context.state.inventory:
            if self._context.results[host.name].state == "pending" and (units := self._units(host.name)):
                queue = self._queues[host.name] = Queue(maxsize=AHEAD)
                work = partial(_read, queue=queue, words=words_for(units, self._query))
                self._readers.append(gevent.spawn(self._guarded, work, host, queue))
        return self

    def __exit__(self, *_: object) -> None:
        gevent.killall(self._readers)

    def merged(self) -> Iterator[Entry]:
        """Every entry, by time, until all hosts have sent theirs."""
        return heapq.merge(*(iter(queue.get, None) for queue in self._queues.values()))

    def followed(self, ended: Event) -> Iterator[Entry]:
        """Entries as they come, until `ended` is set or no host sends any more.

        An entry waits for SETTLE_SECONDS, so that hosts with a longer way do not come too late.
        """
        waiting: list[tuple[Entry, float]] = []
        open_queues = dict(self._queues)
        while open_queues and not ended.is_set():
            for name, queue in list(open_queues.items()):
                with suppress(Empty):
                    for _ in range(AHEAD):
                        if (entry := queue.get_nowait()) is None:
                            del open_queues[name]
                            break
                        heapq.heappush(waiting, (entry, time.monotonic()))
            yield from _settled(waiting, time.monotonic() - SETTLE_SECONDS)
            ended.wait(SETTLE_SECONDS / 5)
        yield from _settled(waiting, time.monotonic())

    def _units(self, name: str) -> list[str]:
        """The units of a host whose entries are wanted: those of its services, and of its gateway."""
        services = self._context.handshakes[name].probe.current
        there = (*services, *((GATEWAY,) if "gateway" in self._context.project.data_by_host[name] else ()))
        return [layout.unit_name(each) for each in there if each in (self._query.services or there)]

    def _guarded(self, work: Callable[[Host], None], host: Host, queue: Queue) -> None:
        try:
            self._context.guarded(work, host)
        finally:
            queue.put(None)


def _read(host: Host, queue: Queue, words: tuple[str, ...]) -> None:
    """Reads the entries of one host. Raises HostFailed with journalctl's last complaint."""
    complaints: deque[str] = deque(maxlen=1)

    def take(line: str) -> None:
        if (entry := read_entry(host.name, line)) is not None:
            queue.put(entry)

    if run_line_by_line(host, words, take, complaints.append):
        raise HostFailed(f"{host.name}: journalctl: {' '.join(complaints)[:300] or 'no output'}")


def _settled(waiting: list[tuple[Entry, float]], before: float) -> Iterator[Entry]:
    """Takes the entries out that came before then, and the earlier ones of those that came later."""
    while waiting and any(came <= before for _, came in waiting):
        yield heapq.heappop(waiting)[0]
