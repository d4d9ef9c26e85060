"""Prints lines for people, with styles in a terminal, else plain and without loading rich; documents; and errors."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Protocol

from rigup.errors import RigupError

Part = str | tuple[str, str]
"""A text, or a text with its style as rich names it: "bold", "red"."""


class Lines(Protocol):
    """Where lines are printed: PlainLines, or a Console."""

    def say(self, *parts: Part, end: str = "\n") -> None:
        """Prints a line of these parts, however long it is."""


class PlainLines:
    """Lines without styles, on standard output or standard error."""

    def __init__(self, stderr: bool = False) -> None:
        self.stderr = stderr

    def say(self, *parts: Part, end: str = "\n") -> None:
        """See Lines."""
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        print(text, end=end, file=sys.stderr if self.stderr else sys.stdout, flush=True)


def lines(stderr: bool = False) -> Lines:
    """Lines on a standard stream, with styles where rich would use them."""
    stream = sys.stderr if stderr else sys.stdout
    if not (stream.isatty() or os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")):
        return PlainLines(stderr)
    from rigup.cli.output.console import Console

    return Console(stderr=stderr)


def print_json(document: Any) -> None:
    """Prints a document for scripts on standard output."""
    print(json_text(document, indent=1))


def print_json_line(document: Any, stderr: bool = False) -> None:
    """Prints a document for scripts on one line."""
    print(json_text(document), file=sys.stderr if stderr else sys.stdout, flush=True)


def json_text(document: Any, indent: int | None = None) -> str:
    """A document as JSON in ASCII. Half a UTF-16 pair, which strict readers refuse, becomes a replacement character."""
    text = json.dumps(document, ensure_ascii=False)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.dumps(json.loads(whole), indent=indent)


def tell(line: str) -> None:
    """Prints a line on standard error, beside what a verb prints as its result."""
    print(line, file=sys.stderr, flush=True)


def show_error(error: RigupError, as_json: bool) -> None:
    """Prints message and hint to standard error; with as_json also to standard output as JSON."""
    if as_json:
        print_json_line({"schema": 1, "error": error.as_json()})
    tell(f"rigup: {error.message}")
    if error.hint:
        tell(f"hint: {error.hint}")
