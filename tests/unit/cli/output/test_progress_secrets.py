"""A secret in a report: on a terminal, and nowhere else."""

from __future__ import annotations

import io

import pytest

from rigup.cli.output.console import Console
from rigup.cli.output.progress import PlainProgress, RichProgress
from rigup.operations.primitives.progress import Progress

MADE = Progress("gpu1", "api key", text="created for this service", secret="hunter2")


def test_a_terminal_shows_it() -> None:
    screen = io.StringIO()
    view = RichProgress()
    view.console = view.bars.live.console = Console(file=screen, force_terminal=True)
    view.show(MADE)
    assert "created for this service: hunter2" in screen.getvalue()


def test_a_pipe_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    PlainProgress().show(MADE)
    said = capsys.readouterr()
    assert "created for this service" in said.err
    assert "hunter2" not in said.err + said.out + repr(MADE)
