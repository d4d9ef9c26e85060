"""Handles readers that close standard output or standard error early (`2>&1 | head`).

A run that changes hosts continues to its end without its reader, because half an apply is worse. A read-only verb
ends when its standard output is closed. An unwritable standard error, closed or on a full disk, never ends a run.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


class DiscardingStream:
    """A text stream that discards output after a write fails with one of `errors`."""

    def __init__(self, stream: TextIO, errors: tuple[type[OSError], ...]) -> None:
        self._stream, self._errors, self._silent = stream, errors, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Like the stream's."""
        if not self._silent:
            try:
                self._stream.write(text)
            except self._errors:
                self._leave()
        return len(text)

    def flush(self) -> None:
        """Like the stream's."""
        if not self._silent:
            try:
                self._stream.flush()
            except self._errors:
                self._leave()

    def _leave(self) -> None:
        """Discards the buffer; otherwise Python's flush at exit would fail again."""
        self._silent = True
        try:
            descriptor = self._stream.fileno()
        except (OSError, io.UnsupportedOperation):
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


@contextmanager
def steady(only_tells: bool) -> Iterator[None]:
    """A context in which a closed reader does not make a step of a run fail.

    only_tells: the verb is read-only, so BrokenPipeError on standard output ends it.
    """
    before = sys.stdout, sys.stderr
    sys.stderr = cast(TextIO, DiscardingStream(sys.stderr, (OSError,)))
    if not only_tells:
        sys.stdout = cast(TextIO, DiscardingStream(sys.stdout, (BrokenPipeError,)))
    try:
        yield
        sys.stderr.flush()
        if not only_tells:
            sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before


def open_missing_streams() -> None:
    """Opens /dev/null for a closed standard stream (`2>&-`), before a connection gets its descriptor."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Python's own streams are None in that case
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
