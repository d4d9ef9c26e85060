"""Live progress on standard error: bars in a terminal, plain lines when piped, JSON events on request."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rigup.cli.output.lines import print_json_line
from rigup.operations.primitives.progress import Progress
from rigup.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from rich.progress import TaskID

    from rigup.run.chains.rates import ProgressRate

PLAIN_EVERY_SECONDS = 10
EVENT_EVERY_SECONDS = 1
OUTSIDE_STEPS = ("log", "api key")
"""Names of reports that are lines of their own, whatever step their chain is in."""


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


@dataclass
class ChainStep:
    """The step that a chain is in. began: when. rate: of what it counts. text, shown: what was last shown, and when."""

    step: str
    began: float
    rate: ProgressRate | None = None
    text: str = ""
    shown: float = -math.inf


def chain_of(progress: Progress) -> tuple[str, str]:
    """What has a line of its own: a host, and each step of it that runs beside others."""
    return progress.host, progress.chain


class ProgressView(ABC):
    """A context manager that shows progress reports."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, str], ChainStep] = {}

    def step_of(self, progress: Progress) -> ChainStep:
        """The step of a report's chain, with its rate; one that was never shown if the report is its first."""
        now, chain = time.monotonic(), chain_of(progress)
        if chain not in self._steps or self._steps[chain].step != progress.step:
            self._steps[chain] = ChainStep(progress.step, now)
        step = self._steps[chain]
        if progress.total:
            from rigup.run.chains.rates import ProgressRate  # a run without changes counts nothing

            step.rate = step.rate or ProgressRate()
            step.rate.count(now, progress.done)
        return step

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def show(self, progress: Progress) -> None:
        """Shows one report; that a chain has ended, only where it says how."""
        if progress.text or not progress.ended:
            self._show(progress)
        if progress.ended:
            self._steps.pop(chain_of(progress), None)
            self._end(chain_of(progress))

    @abstractmethod
    def _show(self, progress: Progress) -> None:
        """Shows one report."""

    def _end(self, chain: tuple[str, str]) -> None:
        """Takes a chain that has ended off the screen, where there is one."""
        return


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

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bars.stop()

    def _show(self, progress: Progress) -> None:
        from rich.markup import escape

        host, step = escape(progress.host), escape(progress.step)
        if progress.ended:
            self.bars.console.print(f"  [bold]{host}[/] {step}: {escape(progress.text)}", soft_wrap=True)
            return
        if progress.step in OUTSIDE_STEPS:
            secret = f": {progress.secret}" if progress.secret and self.console.is_terminal else ""
            self.bars.console.print(f"  [bold]{host}[/] {step}: {escape(progress.text + secret)}", soft_wrap=True)
            return
        chain, current = chain_of(progress), self.step_of(progress)
        if chain not in self.tasks:
            self.tasks[chain] = self.bars.add_task("", host=host, step="", total=None)
        task = self.tasks[chain]
        if current.shown == -math.inf:
            self.bars.reset(task, total=None, description="", host=host, step=step)
        current.shown = time.monotonic()
        counted = progress_text(progress, current.rate)
        text = " ".join(part for part in (progress.text, counted) if part)
        self.bars.update(
            task, total=progress.total or None, completed=progress.done, step=step, description=escape(text)
        )

    def _end(self, chain: tuple[str, str]) -> None:
        if (task := self.tasks.pop(chain, None)) is not None:
            self.bars.remove_task(task)


class PlainProgress(ProgressView):
    """Prints a line when the step or text of a chain changes, and every few seconds while it counts."""

    def _show(self, progress: Progress) -> None:
        if progress.step in OUTSIDE_STEPS:
            self._print(progress)
            return
        now, step = time.monotonic(), self.step_of(progress)
        if progress.text.split(":")[0] != step.text.split(":")[0] or now - step.shown >= PLAIN_EVERY_SECONDS:
            step.text, step.shown = progress.text, now
            took = f"({seconds_text(now - step.began)})" if now - step.began >= 1 and not progress.ended else ""
            self._print(progress, progress_text(progress, step.rate), took)

    def _print(self, progress: Progress, *figures: str) -> None:
        parts = (f"{progress.host}  {progress.step}", progress.text, *figures)
        print("  ".join(part for part in parts if part), file=sys.stderr, flush=True)


class ProgressEvents(ProgressView):
    """Prints each change of a step or text, and what is counted at most once a second, as one line of JSON."""

    def _show(self, progress: Progress) -> None:
        now, step = time.monotonic(), self.step_of(progress)
        if progress.text == step.text and now - step.shown < EVENT_EVERY_SECONDS:
            return
        step.text, step.shown = progress.text, now
        left = step.rate.seconds_left(progress.total) if step.rate and progress.total else None
        per_second = step.rate.per_second if step.rate else None
        event = {
            "schema": 1,
            "host": progress.host,
            "chain": progress.chain or "main",
            "step": progress.step,
            "text": progress.text,
            "done": progress.done,
            "total": progress.total,
            "unit": progress.unit,
            "per_second": per_second and round(per_second, 3),
            "seconds_left": left and round(left, 1),
        }
        print_json_line(event, stderr=True)
