"""`rigup report`: of a host that nobody reaches, of one that serves with others, and how the file is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rigup.cli import main, report
from rigup.connection import connections
from rigup.errors import Unreachable
from rigup.report.inventory_secrets import inventory_secrets
from rigup.run import audit_log
from tests.command_line import DESCRIPTION, CommandLine


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A fleet of two hosts, neither of which answers."""

    def nobody(self: connections.Connections, host: Any) -> None:
        raise Unreachable(f"{host.name}: nobody there")

    made = CommandLine(tmp_path)
    made.describe(["a", "b"])
    monkeypatch.chdir(made.fleet)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(connections.Connections, "begin", lambda self: None)
    monkeypatch.setattr(connections.Connections, "handshake", nobody)
    return made


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_host_of_a_service_over_several_is_asked_with_the_others(
    line: CommandLine, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line.write("group_data/boxes.py", DESCRIPTION.replace('"gpus": []', '"gpus": [], "hosts_per_service": 2'))
    assert main.main(["report", host, "--output", "-"]) == 1
    said = capsys.readouterr().out
    assert f"{host}: nobody there" in said
    assert "--limit" not in said


def test_records_that_cannot_be_read_cost_their_section_alone(
    line: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    path = audit_log.here("a")
    path.mkdir(parents=True)
    assert main.main(["report", "a", "--output", "-"]) == 1
    said = capsys.readouterr().out
    assert f"==== last record here ====\n{path}: Is a directory\n" in said
    assert "==== plans ====" in said and "a: nobody there" in said


@pytest.mark.parametrize("words", [(), ("--html",)], ids=["text", "page"])
def test_only_the_user_may_read_it_whatever_was_there(line: CommandLine, words: tuple[str, ...]) -> None:
    path = line.fleet / "report"
    path.write_text("older")
    path.chmod(0o644)
    assert main.main(["report", "a", "--output", "report", *words]) == 1
    assert "a: nobody there" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("words", [(), ("--html",)], ids=["text", "page"])
def test_what_cannot_be_written_is_said_before_a_host_is_asked(
    line: CommandLine, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "_gathered", None)
    assert main.main(["report", "a", "--output", "nowhere/report", *words]) == 2
    assert capsys.readouterr().err.startswith("rigup: --output: nowhere/report: No such file or directory\n")


def test_without_a_name_it_is_the_hosts_and_the_time(line: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["report", "a", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    (path,) = line.fleet.glob("rigup-report-a-*.txt")
    assert (said, path.stat().st_mode & 0o777) == ({"schema": 1, "file": path.name}, 0o600)


def test_secrets_that_the_inventory_says_are_known_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("in a file\n")
    data = {"api_key_file": "key", "flags": {"api-keys": ["first", "second"], "served-model-name": ["m"]}, "x": 1}
    assert list(inventory_secrets(tmp_path, data)) == ["in a file", "first", "second"]
