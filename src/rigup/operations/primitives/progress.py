"""Progress reports of long steps. Listeners decide what to do: the CLI draws them, a plain pyinfra run does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Progress:
    """One report of one step on one host. `done` and `total` are in `unit`; total 0 means unknown.

    secret: shown after the text on a terminal, and nowhere else. chain: the step beside others that this is part of, ""
    for those that follow one another. ended: nothing of the chain is under way any more; text: how it ended.
    """

    host: str
    step: str
    done: int = 0
    total: int = 0
    unit: str = ""
    text: str = ""
    secret: str = field(default="", repr=False)
    chain: str = ""
    ended: bool = False


_listeners: list[Callable[[Progress], None]] = []


def listen(listener: Callable[[Progress], None]) -> None:
    """Registers a listener for all further reports."""
    _listeners.append(listener)


_chain: ContextVar[str] = ContextVar("rigup_chain", default="")


@contextmanager
def in_chain(name: str) -> Iterator[None]:
    """Marks the reports of this greenlet as those of a step beside others."""
    token = _chain.set(name)
    try:
        yield
    finally:
        _chain.reset(token)


def counting(host: str, step: str, unit: str, text: str) -> Callable[[int, int], None]:
    """A function that reports how much of a step is done: it takes what is done, and the total."""
    return lambda done, total: report(Progress(host, step, done, total, unit, text))


def report(progress: Progress) -> None:
    """Sends a report to every listener."""
    progress = replace(progress, chain=_chain.get()) if _chain.get() else progress
    for listener in _listeners:
        listener(progress)
