"""How a long step says how far it is, without knowing who listens: the CLI draws it, a plain pyinfra run does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One report of one step on one host. `done` and `total` are in `unit`; total 0 means that nobody knows yet."""

    host: str
    step: str
    done: int = 0
    total: int = 0
    unit: str = ""
    text: str = ""


_listeners: list[Callable[[Progress], None]] = []


def listen(listener: Callable[[Progress], None]) -> None:
    """From now on every report goes to `listener` too."""
    _listeners.append(listener)


def report(progress: Progress) -> None:
    """Tells every listener."""
    for listener in _listeners:
        listener(progress)
