"""Every document that a verb prints in these tests is held against its type."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rigup.cli import main
from tests.documents import check


class _Copy:
    """Standard output that keeps a copy."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.text = stream, ""

    def write(self, text: str) -> int:
        self.text += text
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@pytest.fixture(autouse=True)
def checked_documents(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checks what main() prints with --json."""
    run = main._run

    def checked(args: argparse.Namespace) -> int:
        if not getattr(args, "json", False):
            return run(args)
        copy = _Copy(sys.stdout)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", copy)
            code = run(args)
        check(args.verb, copy.text)
        return code

    monkeypatch.setattr(main, "_run", checked)
    yield
