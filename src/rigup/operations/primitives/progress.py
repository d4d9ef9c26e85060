"""Progress reports of long steps. Listeners decide what to do: the CLI draws them, a plain pyinfra run does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """One report of one step on one host. `done` and `total` are in `unit`; total 0 means unknown.

    secret: shown after the text on a terminal, and nowhere else.
    """

    host: str
    step: str
    done: int = 0
    total: int = 0
    unit: str = ""
    text: str = ""
    secret: str = field(default="", repr=False)


_listeners: list[Callable[[Progress], None]] = []


def listen(listener: Callable[[Progress], None]) -> None:
    """Registers a listener for all further reports."""
    _listeners.append(listener)


def report(progress: Progress) -> None:
    """Sends a report to every listener."""
    for listener in _listeners:
        listener(progress)
