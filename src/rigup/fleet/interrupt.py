"""Ctrl-C during an apply: the running steps are stopped in an orderly way; a second one leaves at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import gevent

from rigup.operations import jobs

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """While entered, the first signal asks every host's work to stop, and the second ends the process."""
    watchers = [gevent.signal_handler(number, _stop) for number in SIGNALS]
    try:
        yield
    finally:
        for watcher in watchers:
            watcher.cancel()


def _stop() -> None:
    if jobs.cancelled():
        os._exit(130)
    jobs.cancel()
    print("\nstopping: the current steps are being ended (Ctrl-C again to leave at once)", file=sys.stderr, flush=True)
