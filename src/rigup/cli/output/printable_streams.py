"""Makes everything written to standard output and standard error printable text."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from rigup.printable import printable


class PrintableStream(io.TextIOBase):
    """Writes printable text to a stream. Our colours go to `stream` (cli/output/console.py)."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: the process owns the stream."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    encoding = property(lambda self: self.stream.encoding)
    errors = property(lambda self: self.stream.errors)


@contextmanager
def printable_streams() -> Iterator[None]:
    """A context in which all writes to the two streams (`print`, `json.dump`, tracebacks) are printable."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, PrintableStream(stream)) if stream else stream for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
