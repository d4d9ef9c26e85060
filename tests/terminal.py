"""A terminal without a screen: keeps what is written to it, so that tests see what a person would."""

from __future__ import annotations

import io
import re

import pytest


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Always."""
        return True


def describe(monkeypatch: pytest.MonkeyPatch, width: int, kind: str = "xterm-256color", colour: bool = False) -> None:
    """Sets the environment variables of a terminal. kind: as in TERM. colour: False sets NO_COLOR."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", str(width))
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")


def plain(text: str) -> str:
    """The text without colours and bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
