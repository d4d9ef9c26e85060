"""The last command of a run that changes nothing: services asked, the lease looked at, the record appended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigup.connection import lease
from rigup.operations.service.reply import Reply
from rigup.run import finish
from rigup.run.finish import FinishResult, finish_host
from tests.unit.local_host import LocalHost

GOOD = {"state": "answered", "answer": "Paris isn't \\n far; $HOME `ls`", "tokens": 1}
ANSWERED = Reply(state="answered", answer="Paris isn't \\n far; $HOME `ls`", tokens=1)
BAD = {"state": "failed", "why": "the unit is failed"}


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lease, "FOLDER", str(tmp_path))
    monkeypatch.setattr(lease, "FILE", str(tmp_path / "lease.json"))
    # stands for ask.py: says what it was given
    monkeypatch.setattr(finish, "ASK", ("cat",))
    return tmp_path


def said(tmp_path: Path, seen: str = "", **requests: dict[str, Any]) -> FinishResult:
    last = (("read -r line; printf '%s\\n' \"$line\" >> " + str(tmp_path / "log"), "a 'record' $HOME\n"),)
    return finish_host(LocalHost(), seen, requests, last)


def stamp() -> str:
    return subprocess.run(["sh", "-c", lease.stamp()], capture_output=True, text=True).stdout.strip()


def test_answers_come_back_whole_and_the_record_is_appended(tmp_path: Path) -> None:
    assert said(tmp_path, chat=GOOD, code=GOOD) == FinishResult({"chat": ANSWERED, "code": ANSWERED}, False, True)
    assert (tmp_path / "log").read_text() == "a 'record' $HOME\n"


def test_where_one_does_not_answer_nothing_is_appended(tmp_path: Path) -> None:
    assert said(tmp_path, chat=BAD, code=GOOD) == FinishResult(
        {"chat": Reply.model_validate(BAD), "code": ANSWERED}, False, False
    )
    assert not (tmp_path / "log").exists()


def test_a_host_without_the_program_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "ASK", ("python3", str(tmp_path / "missing.py")))
    assert said(tmp_path, chat=GOOD) == FinishResult({"chat": Reply(state="failed")}, False, False)


def test_a_lease_since_the_greeting_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "lease.lock").write_text("taken\n")
    seen = stamp()
    assert said(tmp_path, seen, chat=GOOD).recorded
    (tmp_path / "lease.lock").write_text("taken\n")
    assert said(tmp_path, seen, chat=GOOD) == FinishResult({"chat": ANSWERED}, True, False)


def test_a_lease_that_somebody_has_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "lease.lock").write_text("taken\n")
    seen = stamp()
    (tmp_path / "lease.json").write_text(json.dumps({}))
    assert said(tmp_path, seen).changed_elsewhere
    assert stamp().split() == [seen, "held"]


def test_the_first_lease_of_a_host_is_noticed(tmp_path: Path) -> None:
    assert stamp() == ""
    (tmp_path / "lease.lock").write_text("taken\n")
    assert said(tmp_path, "").changed_elsewhere


def test_a_host_that_lies_about_an_answer_has_not_recorded_anything(tmp_path: Path) -> None:
    lie = {"state": "answered", "answer": ["Paris"], "tokens": 1}
    found = said(tmp_path, chat=lie)
    assert (found.replies["chat"].state, found.recorded) == ("failed", False)
    assert found.replies["chat"].why == "the host's reply is invalid: answer Input should be a valid string"
