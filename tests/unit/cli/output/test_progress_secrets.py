"""A secret in a report: on a terminal, and nowhere else."""

from __future__ import annotations

import io

import pytest

from rigup.cli.output.console import Console
from rigup.cli.output.progress import PlainProgress, RichProgress
from rigup.operations.primitives.progress import Progress

MADE = Progress("gpu1", "api key", text="made there", secret="hunter2")


def test_a_terminal_shows_it() -> None:
    screen = io.StringIO()
    view = RichProgress()
    view.console = view.bars.live.console = Console(file=screen, force_terminal=True)
    view.show(MADE)
    assert "made there: hunter2" in screen.getvalue()


def test_a_pipe_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    PlainProgress().show(MADE)
    said = capsys.readouterr()
    assert "made there" in said.err
    assert "hunter2" not in said.err + said.out + repr(MADE)
