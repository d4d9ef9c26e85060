"""Ctrl-C: what runs is stopped in an orderly way; a second one leaves at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent
from gevent.event import Event

from rigup.operations.primitives import jobs

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """While entered, the first signal asks every host's work to stop, and the second ends the process."""
    with _answered_by(_stop):
        yield


@contextmanager
def ended_by_signals() -> Iterator[Event]:
    """While entered, the first signal sets what is yielded, and the second ends the process.

    As an exception it would reach whichever connection is being served, and could end there.
    """
    ended = Event()

    def end() -> None:
        if ended.is_set():
            os._exit(130)
        ended.set()

    with _answered_by(end):
        yield ended


@contextmanager
def _answered_by(handler: Callable[[], None]) -> Iterator[None]:
    watchers = [gevent.signal_handler(number, handler) for number in SIGNALS]
    try:
        yield
    finally:
        for watcher in watchers:
            watcher.cancel()


def _stop() -> None:
    if jobs.cancelled():
        os._exit(130)
    jobs.cancel()
    print("\nstopping: ending the current steps (press Ctrl-C again to exit at once)", file=sys.stderr, flush=True)
