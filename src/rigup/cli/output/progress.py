"""Live progress on standard error: bars in a terminal, plain lines when piped, JSON events on request."""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from rigup.operations.primitives.progress import Progress
from rigup.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from rich.progress import TaskID

    from rigup.run.chains.rates import ProgressRate

PLAIN_EVERY_SECONDS = 10
EVENT_EVERY_SECONDS = 1


def view(events: bool = False) -> ProgressView:
    """A view for standard error: bars on a terminal, else lines. events: JSON events in any case."""
    if events:
        return ProgressEvents()
    return RichProgress() if sys.stderr.isatty() else PlainProgress()


def progress_text(progress: Progress, rate: ProgressRate | None = None) -> str:
    """Text of a report's progress: "98.0 MB of 98.4 MB, 11.2 MB/s, 0.04 s left", "123 of 211 steps, 9.50 s left"."""
    if not progress.total:
        return ""
    in_bytes = progress.unit == "bytes"
    done = f"{bytes_text(progress.done)} of {bytes_text(progress.total)}"
    parts = [done if in_bytes else f"{progress.done} of {progress.total} {progress.unit}"]
    if rate and rate.per_second and progress.done < progress.total:
        parts += [f"{bytes_text(rate.per_second)}/s"] if in_bytes else []
        parts += [f"{seconds_text(rate.seconds_left(progress.total) or 0)} left"]
    return ", ".join(parts)


class Rates:
    """The rate of what each chain counts in its current step."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, str], tuple[str, ProgressRate]] = {}

    def count(self, progress: Progress) -> ProgressRate | None:
        """The rate of the chain of a report, which it updates; None if its step has counted nothing yet."""
        chain = chain_of(progress)
        step, rate = self._rates.get(chain, ("", None))
        if step != progress.step:
            self._rates.pop(chain, None)
            rate = None
        if progress.total:
            from rigup.run.chains.rates import ProgressRate  # a run without changes counts nothing

            rate = rate or ProgressRate()
            rate.count(time.monotonic(), progress.done)
            self._rates[chain] = (progress.step, rate)
        return rate


def chain_of(progress: Progress) -> tuple[str, str]:
    """What has a line of its own: a host, and each step of it that runs beside others."""
    return progress.host, progress.chain


class ProgressView(ABC):
    """A context manager that shows progress reports."""

    def __init__(self) -> None:
        self.rates = Rates()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    @abstractmethod
    def show(self, progress: Progress) -> None:
        """Shows one report."""


class RichProgress(ProgressView):
    """A line per chain: step, bar if the length is known, elapsed time of the step. Log lines stay above."""

    def __init__(self) -> None:
        super().__init__()
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        from rigup.cli.output.console import Console

        self.console = Console(stderr=True, highlight=False)
        columns = ("[bold]{task.fields[host]}", "{task.fields[step]}", "{task.description}")
        self.bars = Bars(
            SpinnerColumn(),
            *(TextColumn(column) for column in columns),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            refresh_per_second=8,
        )
        self.tasks: dict[tuple[str, str], TaskID] = {}
        self.steps: dict[tuple[str, str], str] = {}

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bars.stop()

    def show(self, progress: Progress) -> None:
        from rich.markup import escape

        host, step = escape(progress.host), escape(progress.step)
        if progress.step in ("log", "api key"):
            secret = f": {progress.secret}" if progress.secret and self.console.is_terminal else ""
            self.bars.console.print(f"  [bold]{host}[/] {step}: {escape(progress.text + secret)}", soft_wrap=True)
            return
        chain = chain_of(progress)
        if chain not in self.tasks:
            self.tasks[chain] = self.bars.add_task("", host=host, step="", total=None)
        task = self.tasks[chain]
        if self.steps.get(chain) != progress.step:
            self.steps[chain] = progress.step
            self.bars.reset(task, total=None, description="", host=host, step=step)
        counted = progress_text(progress, self.rates.count(progress))
        text = " ".join(part for part in (progress.text, counted) if part)
        self.bars.update(
            task, total=progress.total or None, completed=progress.done, step=step, description=escape(text)
        )


class PlainProgress(ProgressView):
    """Prints a line when the step or text of a chain changes, and every few seconds while it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.began: dict[tuple[str, str], tuple[str, float]] = {}
        self.shown: dict[tuple[str, str], tuple[str, float]] = {}

    def show(self, progress: Progress) -> None:
        now, chain = time.monotonic(), chain_of(progress)
        step, began = self.began.get(chain, ("", now))
        log = progress.step in ("log", "api key")
        if step != progress.step and not log:
            began = now
            self.began[chain] = (progress.step, now)
        words, last = self.shown.get(chain, ("", 0.0))
        line, rate = f"{progress.step}: {progress.text}", self.rates.count(progress)
        if log or line.split(":")[:2] != words.split(":")[:2] or now - last >= PLAIN_EVERY_SECONDS:
            self.shown[chain] = (line, now) if not log else (words, last)
            parts = [
                f"{progress.host}  {progress.step}",
                progress.text,
                progress_text(progress, rate),
                f"({seconds_text(now - began)})" if now - began >= 1 and not log else "",
            ]
            print("  ".join(part for part in parts if part), file=sys.stderr, flush=True)


class ProgressEvents(ProgressView):
    """Prints each change of a step or text, and what is counted at most once a second, as one line of JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[tuple[str, str], tuple[str, str, float]] = {}

    def show(self, progress: Progress) -> None:
        now, chain, rate = time.monotonic(), chain_of(progress), self.rates.count(progress)
        step, text, last = self.shown.get(chain, ("", "", 0.0))
        if (step, text) == (progress.step, progress.text) and now - last < EVENT_EVERY_SECONDS:
            return
        self.shown[chain] = (progress.step, progress.text, now)
        left = rate.seconds_left(progress.total) if rate and progress.total else None
        per_second = rate.per_second if rate else None
        event = {
            "schema": 1,
            "host": progress.host,
            "chain": chain[1] or "main",
            "step": progress.step,
            "text": progress.text,
            "done": progress.done,
            "total": progress.total,
            "unit": progress.unit,
            "per_second": per_second and round(per_second, 3),
            "seconds_left": left and round(left, 1),
        }
        print(json.dumps(event), file=sys.stderr, flush=True)
