"""`rigup lock` as it is told: what came of the lock where what it pins could not be collected."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rigup.cli.main import main
from rigup.lockfile.upgrade import NAMES
from tests.command_line import CommandLine


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet that serves nothing, so that nobody is asked; `shelf` is a file, so that nothing is collected there."""
    line = CommandLine(tmp_path)
    line.describe(["a"], 'rig = {"gpus": []}\nservices = {}\n')
    line.write("shelf", "")
    monkeypatch.chdir(line.fleet)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return line.fleet


def test_what_became_of_the_lock_is_told_where_nothing_could_be_collected(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lock", "--vendor", "shelf", "--json"]) == 2
    message, hint = "cannot write shelf: File exists", "check permissions and free disk space"
    first = capsys.readouterr()
    said = json.loads(first.out)
    assert (said["written"], said["vendored"]) == (True, None)
    assert said["error"] == {"message": message, "hint": f"{hint}; the lock is written"}
    assert first.err.endswith(f"rigup: {message}\nhint: {hint}; the lock is written\n")
    assert (fleet / "rigup.lock").exists()

    assert main(["lock", "--vendor", "shelf"]) == 2
    second = capsys.readouterr()
    assert second.out == "rigup.lock: nothing to change\n"
    assert second.err.endswith(f"rigup: {message}\nhint: {hint}\n")


def test_help_names_all_that_can_be_moved(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # argparse breaks lines within a name
    with pytest.raises(SystemExit):
        main(["lock", "--help"])
    said = capsys.readouterr().out.partition("NAME is ")[2].partition("; without VERSION")[0]
    words = re.sub(r" \(.*?\)", "", said).replace(" or ", ", ").split(", ")
    assert words == ["a repository", "an engine", *NAMES]
