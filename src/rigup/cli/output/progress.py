"""Live progress on standard error: bars in a terminal, plain lines when piped."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

from rigup.operations.primitives.progress import Progress
from rigup.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_EVERY_SECONDS = 10


class ProgressView(Protocol):
    """A context manager that shows progress reports."""

    def __enter__(self) -> ProgressView: ...
    def __exit__(self, *exception: object) -> None: ...
    def show(self, progress: Progress) -> None:
        """Shows one report."""


def view() -> ProgressView:
    """A view for standard error: bars on a terminal, else lines."""
    return RichProgress() if sys.stderr.isatty() else PlainProgress()


def progress_text(progress: Progress) -> str:
    """Text of a report's progress: "98.0 MB of 98.4 MB", "123 of 211 steps"."""
    if not progress.total:
        return ""
    if progress.unit == "bytes":
        return f"{bytes_text(progress.done)} of {bytes_text(progress.total)}"
    return f"{progress.done} of {progress.total} {progress.unit}"


class RichProgress:
    """A line per host: step, bar if the length is known, elapsed time of the step. Log lines stay above."""

    def __init__(self) -> None:
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
        self.tasks: dict[str, TaskID] = {}
        self.steps: dict[str, str] = {}

    def __enter__(self) -> RichProgress:
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
        if progress.host not in self.tasks:
            self.tasks[progress.host] = self.bars.add_task("", host=host, step="", total=None)
        task = self.tasks[progress.host]
        if self.steps.get(progress.host) != progress.step:
            self.steps[progress.host] = progress.step
            self.bars.reset(task, total=None, description="", host=host, step=step)
        text = " ".join(part for part in (progress.text, progress_text(progress)) if part)
        self.bars.update(
            task, total=progress.total or None, completed=progress.done, step=step, description=escape(text)
        )


class PlainProgress:
    """Prints a line when a host's step or text changes, and every few seconds while it counts."""

    def __init__(self) -> None:
        self.began: dict[str, tuple[str, float]] = {}
        self.shown: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        step, began = self.began.get(progress.host, ("", now))
        if step != progress.step:
            began = now
            self.began[progress.host] = (progress.step, now)
        words, last = self.shown.get(progress.host, ("", 0.0))
        line = f"{progress.step}: {progress.text}"
        log = progress.step in ("log", "api key")
        if log or line.split(":")[:2] != words.split(":")[:2] or now - last >= PLAIN_EVERY_SECONDS:
            self.shown[progress.host] = (line, now)
            elapsed = seconds_text(now - began)
            parts = [
                f"{progress.host}  {progress.step}",
                progress.text,
                progress_text(progress),
                f"({elapsed})" if not log else "",
            ]
            print("  ".join(part for part in parts if part), file=sys.stderr, flush=True)
