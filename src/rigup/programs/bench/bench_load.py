"""Keeps a number of streams busy for a while and records every request: one level of a benchmark.

A level with a duration begins with a run-in that is not counted: every stream's first answer has a random length, so
that the streams do not run in step. Then the window opens. Requests that begin within it are counted, and the load
continues until the last of them has ended. A level with a number of requests has no run-in and counts all of them.
"""

from __future__ import annotations

import random
import selectors
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rigup.programs.bench.bench_endpoint import MeasuredEndpoint
from rigup.programs.bench.bench_prompts import Prompts
from rigup.programs.bench.bench_stream import RequestRecord, Stream
from rigup.programs.bench.bench_target import reached

TICK_SECONDS = 0.1
REPORT_SECONDS = 0.5
MOST_PAUSE = 2.0
RUN_IN_SECONDS = 120.0
"""The maximum duration of the run-in."""


@dataclass(frozen=True)
class Level:
    """The parameters of one measurement. seconds: the window; or requests: how many. Lengths are tokens.

    timeout_s: how long a stream may be silent.
    """

    concurrency: int
    input: int
    output: int
    seconds: float | None = None
    requests: int | None = None
    timeout_s: float = 300.0


@dataclass
class LevelResult:
    """The result of a level. begin, end: its window. late: by how many seconds each packet was read late."""

    records: list[RequestRecord]
    begin: float
    end: float
    complete: bool
    late: array[float]
    busy: float


class Load:
    """One level, run once. `stopped` returns whether to stop early."""

    def __init__(
        self,
        endpoint: MeasuredEndpoint,
        level: Level,
        name: str,
        seed: int,
        stopped: Callable[[], bool],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self._endpoint, self._level, self._name, self._stopped, self._report = endpoint, level, name, stopped, report
        self._prompts = Prompts(endpoint.form, level.input, seed)
        self._chance = random.Random(seed)
        self._selector = selectors.DefaultSelector()
        self._late = array("d")
        self._streams: list[Stream] = []
        self._records: list[RequestRecord] = []
        self._waiting: list[tuple[float, Stream]] = []
        self._failures: Counter[Stream] = Counter()
        self._running_in: set[Stream] = set()
        self._counted = 0
        self._began = self._begin = self._until = 0.0
        self._over = False

    def run(self) -> LevelResult:
        """Runs until the last counted request has ended or the load is stopped."""
        address = reached(self._endpoint.target)
        level, worked = self._level, time.process_time()
        self._began = time.monotonic()
        self._streams = [
            Stream(self._endpoint.target, address, self._selector, self._ended, self._late)
            for _ in range(min(level.concurrency, level.requests or level.concurrency))
        ]
        if level.seconds is None:
            self._open_window(self._began)
        else:
            self._running_in = set(self._streams)
        for stream in self._streams:
            self._next(stream)
        self._loop()
        for stream in self._streams:
            stream.close()
        self._selector.close()
        now = time.monotonic()
        busy = (time.process_time() - worked) / (now - self._began)
        ends = [record.ended for record in self._records if record.ended]
        begin = self._begin or self._began
        end = max(ends, default=now) if level.seconds is None or not self._begin else min(self._until, now)
        return LevelResult(self._records, begin, max(end, begin + 1e-9), self._over, self._late, busy)

    def _loop(self) -> None:
        tick = shown = self._began
        while not self._over and not self._stopped():
            for key, mask in self._selector.select(TICK_SECONDS):
                key.data(mask)
            now = time.monotonic()
            if now - tick >= TICK_SECONDS:
                tick = now
                self._each_tick(now)
            if now - shown >= REPORT_SECONDS:
                shown = now
                self._report_progress(now)

    def _each_tick(self, now: float) -> None:
        due = [stream for when, stream in self._waiting if when <= now]
        self._waiting = [(when, stream) for when, stream in self._waiting if when > now]
        for stream in due:
            self._next(stream)
        for stream in self._streams:
            if why := stream.hanging(now, self._level.timeout_s):
                stream.fail(why)
        if self._running_in and now - self._began > RUN_IN_SECONDS:
            self._running_in.clear()
            self._open_window(now)
        if self._begin and now >= self._until:
            self._check_over()

    def _open_window(self, now: float) -> None:
        self._begin = now
        self._until = now + self._level.seconds if self._level.seconds is not None else float("inf")

    def _next(self, stream: Stream) -> None:
        """Gives a stream its next request, if any."""
        level, now = self._level, time.monotonic()
        if level.requests is not None and len(self._records) >= level.requests:
            return
        counted = bool(self._begin) and self._begin <= now < self._until
        length = self._chance.randint(1, level.output) if stream in self._running_in else level.output
        record = RequestRecord(f"{self._name}-{len(self._records)}", counted, length)
        self._records.append(record)
        self._counted += counted
        stream.begin(record, self._endpoint.form.path, self._prompts.body(length))

    def _ended(self, stream: Stream, record: RequestRecord) -> None:
        self._counted -= record.counted
        if stream in self._running_in:
            self._running_in.discard(stream)
            if not self._running_in and not self._begin:
                self._open_window(record.ended)
        self._check_over()
        if self._over:
            return
        if record.error:  # do not flood a failing endpoint
            self._failures[stream] += 1
            pause = min(MOST_PAUSE, 0.1 * 2 ** min(self._failures[stream], 6))
            self._waiting.append((time.monotonic() + pause, stream))
        else:
            self._failures[stream] = 0
            self._next(stream)

    def _check_over(self) -> None:
        """Ends the level once every counted request has ended and none will begin."""
        if self._counted:
            return
        if self._level.requests is not None:
            self._over = len(self._records) >= self._level.requests
        else:
            self._over = bool(self._begin) and time.monotonic() >= self._until

    def _report_progress(self, now: float) -> None:
        ended = [record for record in self._records if record.ended]
        self._report(
            {
                "concurrency": self._level.concurrency,
                "input": self._level.input,
                "output": self._level.output,
                "phase": "run-in" if not self._begin else "window" if now < self._until else "last answers",
                "elapsed_s": now - (self._begin or self._began),
                "of_s": self._level.seconds,
                "of_requests": self._level.requests,
                "open": sum(stream.record is not None for stream in self._streams),
                "ended": len(ended),
                "failed": sum(bool(record.error) for record in ended),
                "tokens": sum(len(record.arrivals) for record in self._records),
            }
        )
