"""The journal of services over hosts: entries as journalctl prints them in JSON, merged by their time."""

from __future__ import annotations

import heapq
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from sys import getsizeof
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
AHEAD = 64 << 20
"""Bytes of memory that entries of all hosts may take before they are printed; each host has an equal part."""
MOST_PRINTED = 1 << 30
"""Bytes that one host may print where nobody said how many lines; what follows is left out, and the host fails."""
LONGEST_MESSAGE, MOST_MESSAGE_LINES = 1 << 16, 1000
"""In characters and lines; journald itself cuts a line of a service at 48 KiB. The rest is left out."""
PATIENCE_SECONDS = 30.0
"""How long a host may take to its first entry, and from one to the next, before it fails and others are printed."""
SECONDS_AN_ENTRY = 0.02
"""By how much each entry prolongs that, up to PATIENCE_SECONDS: one now and then is not enough."""
SETTLE_SECONDS = 0.5
"""How long a new entry waits for earlier ones of other hosts."""
INFORMATION = 6
_OVERHEAD = 500
_UNIT = re.compile(r"rigup-([a-z][a-z0-9-]{0,60})\.service")


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

    @property
    def bytes(self) -> int:
        """Its memory, about."""
        return getsizeof(self.message) + _OVERHEAD

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
    with suppress(ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError, StopIteration):
        fields = json.loads(line)
        units = map(_UNIT.fullmatch, (str(fields.get(name)) for name in UNITS))
        service = next(unit[1] for unit in units if unit)
        when = int(fields["__REALTIME_TIMESTAMP"])
        priority = int(fields.get("PRIORITY") or INFORMATION)
        if 0 <= when <= LAST_SECOND * 10**6 and 0 <= priority <= 7:
            return Entry(when, host, service, priority, _text(fields.get("MESSAGE")))
    return None


def _text(message: Any) -> str:
    """A message: journalctl writes one that is not UTF-8 as a list of bytes, and null for one that is too long."""
    if message is None:
        return "(too long for the journal's JSON)"
    if isinstance(message, list):
        message = bytes(message[: 4 * LONGEST_MESSAGE]).decode(errors="replace")
    lines = str(message)[:LONGEST_MESSAGE].split("\n", MOST_MESSAGE_LINES)
    return "\n".join(lines[:MOST_MESSAGE_LINES])


def words_for(units: list[str], query: JournalQuery) -> tuple[str, ...]:
    """The command that prints the entries of these units."""
    return (
        *("journalctl", "--no-pager", "--quiet", "--all", "--output=json", f"--output-fields={FIELDS}"),
        *((f"--lines={query.lines}",) if query.lines is not None else ()),
        *((f"--since={query.since}",) if query.since is not None else ()),
        *(("--follow",) if query.follow else ()),
        *(f"--unit={unit}" for unit in units),
    )


class _Feed:
    """The entries of one host from when they are read until they are `printed`. most: in bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._room = Event()
        self.queue: Queue = Queue()

    def put(self, entry: Entry) -> None:
        """Adds an entry, once there is room for it."""
        while self._held >= self._most:
            self._room.clear()
            self._room.wait()
        self._held += entry.bytes
        self.queue.put(entry)

    def end(self) -> None:
        """Says that no more entries come."""
        self.queue.put(None)

    def printed(self, entry: Entry) -> None:
        """Frees the room of an entry."""
        self._held -= entry.bytes
        self._room.set()


class Journal:
    """The entries of all hosts that a run has reached. Leaving it closes the commands on the hosts."""

    def __init__(self, context: RunContext, query: JournalQuery) -> None:
        self._context, self._query = context, query
        self._feeds: dict[str, _Feed] = {}
        self._readers: list[Any] = []

    def __enter__(self) -> Journal:
        reached = [host for host in self._context.state.inventory if self._is_asked(host)]
        for host in reached:
            feed = self._feeds[host.name] = _Feed(AHEAD // len(reached))
            work = partial(_read, feed=feed, query=self._query, units=self._units(host.name))
            self._readers.append(gevent.spawn(self._guarded, work, host, feed))
        return self

    def __exit__(self, *_: object) -> None:
        gevent.killall(self._readers)

    def merged(self) -> Iterator[Entry]:
        """Every entry, by time, until all hosts have sent theirs or were waited for long enough."""
        for entry in heapq.merge(*(iter(feed.queue.get, None) for feed in self._feeds.values())):
            self._feeds[entry.host].printed(entry)
            yield entry

    def followed(self, ended: Event) -> Iterator[Entry]:
        """Entries as they come, until `ended` is set or no host sends any more.

        An entry waits for SETTLE_SECONDS, so that hosts with a longer way do not come too late.
        """
        waiting: list[tuple[Entry, float]] = []
        open_feeds = dict(self._feeds)
        while open_feeds and not ended.is_set():
            for name, feed in list(open_feeds.items()):
                with suppress(Empty):
                    for _ in range(feed.queue.qsize()):
                        if (entry := feed.queue.get_nowait()) is None:
                            del open_feeds[name]
                            break
                        heapq.heappush(waiting, (entry, time.monotonic()))
            yield from self._settled(waiting, time.monotonic() - SETTLE_SECONDS)
            ended.wait(SETTLE_SECONDS / 5)
        yield from self._settled(waiting, time.monotonic())

    def _settled(self, waiting: list[tuple[Entry, float]], before: float) -> Iterator[Entry]:
        """Takes the entries out that came before then, and the earlier ones of those that came later."""
        while waiting and any(came <= before for _, came in waiting):
            entry, _ = heapq.heappop(waiting)
            self._feeds[entry.host].printed(entry)
            yield entry

    def _is_asked(self, host: Host) -> bool:
        return self._context.results[host.name].state == "pending" and bool(self._units(host.name))

    def _units(self, name: str) -> list[str]:
        """The units of a host whose entries are wanted: those of its services, and of its gateway."""
        services = self._context.handshakes[name].probe.current
        there = (*services, *((GATEWAY,) if "gateway" in self._context.project.data_by_host[name] else ()))
        return [layout.unit_name(each) for each in there if each in (self._query.services or there)]

    def _guarded(self, work: Callable[[Host], None], host: Host, feed: _Feed) -> None:
        try:
            self._context.guarded(work, host)
        finally:
            feed.end()


class _Enough(Exception):
    """Raised when a host has sent what it was asked for, whether or not it ends by itself."""


class _Patience:
    """The time that remains for a host's next entry. Used around all that waits for the host."""

    def __init__(self) -> None:
        self._left = PATIENCE_SECONDS
        self._began = time.monotonic()
        self.timeout = gevent.Timeout(self._left)
        self.timeout.start()

    def rest(self) -> None:
        """The host is not waited for until `resume`."""
        self.timeout.close()
        waited = time.monotonic() - self._began
        self._left = min(PATIENCE_SECONDS, self._left - waited + SECONDS_AN_ENTRY)

    def resume(self) -> None:
        """The host is waited for again."""
        self._began = time.monotonic()
        self.timeout = gevent.Timeout(max(self._left, 0.0))
        self.timeout.start()


def _read(host: Host, feed: _Feed, query: JournalQuery, units: list[str]) -> None:
    """Reads the entries of one host. Raises HostFailed with journalctl's last complaint, or if it prints too slowly.

    A host that is followed may be silent as long as it likes.
    """
    complaints: deque[str] = deque(maxlen=1)
    patience = None if query.follow else _Patience()
    most = None if query.follow else query.lines
    taken = printed = 0

    def take(line: str) -> None:
        nonlocal taken, printed
        if (entry := read_entry(host.name, line)) is None:
            return
        if patience:
            patience.rest()
        if most != 0:
            taken, printed = taken + 1, printed + entry.bytes
            feed.put(entry)
        if most is not None and taken >= most:
            raise _Enough
        if patience:
            if printed > MOST_PRINTED:
                raise HostFailed(
                    f"{host.name}: journalctl prints more than {MOST_PRINTED >> 20:,} MiB",
                    "add --lines N, or a later --since",
                )
            patience.resume()

    try:
        if run_line_by_line(host, words_for(units, query), take, complaints.append):
            raise HostFailed(f"{host.name}: journalctl: {' '.join(complaints)[:300] or 'no output'}")
    except _Enough:
        return
    except gevent.Timeout as late:
        if patience is None or late is not patience.timeout:
            raise
        what = "entries too slowly" if taken else f"nothing within {PATIENCE_SECONDS:.0f} s"
        raise HostFailed(
            f"{host.name}: journalctl prints {what}", f"on the host: journalctl --unit={units[0]} --lines=1"
        ) from None
    finally:
        if patience:
            patience.timeout.close()
