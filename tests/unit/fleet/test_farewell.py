"""The last command of a run that changes nothing: services asked, the lease looked at, the record appended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigup.fleet import farewell, lease
from rigup.fleet.farewell import Farewell, say_farewell
from tests.unit.local_host import LocalHost

GOOD = {"state": "answered", "answer": "Paris isn't \\n far; $HOME `ls`", "tokens": 1}
BAD = {"state": "failed", "why": "the unit is failed"}


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lease, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(lease, "FILE", str(tmp_path / "lease.json"))
    # stands for ask.py: says what it was given
    monkeypatch.setattr(farewell, "ASK", ("cat",))
    return tmp_path


def said(tmp_path: Path, seen: str = "", **requests: dict[str, Any]) -> Farewell:
    last = (("read -r line; printf '%s\\n' \"$line\" >> " + str(tmp_path / "log"), "a 'record' $HOME\n"),)
    return say_farewell(LocalHost(), seen, requests, last)


def stamp() -> str:
    return subprocess.run(["sh", "-c", lease.stamp()], capture_output=True, text=True).stdout.strip()


def test_answers_come_back_whole_and_the_record_is_appended(tmp_path: Path) -> None:
    assert said(tmp_path, chat=GOOD, code=GOOD) == Farewell({"chat": GOOD, "code": GOOD}, False, True)
    assert (tmp_path / "log").read_text() == "a 'record' $HOME\n"


def test_where_one_does_not_answer_nothing_is_appended(tmp_path: Path) -> None:
    assert said(tmp_path, chat=BAD, code=GOOD) == Farewell({"chat": BAD, "code": GOOD}, False, False)
    assert not (tmp_path / "log").exists()


def test_a_host_without_the_program_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farewell, "ASK", ("python3", str(tmp_path / "missing.py")))
    assert said(tmp_path, chat=GOOD) == Farewell({"chat": {"state": "failed", "why": ""}}, False, False)


def test_a_lease_since_the_greeting_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "lease.lock").write_text("taken\n")
    seen = stamp()
    assert said(tmp_path, seen, chat=GOOD).recorded
    (tmp_path / "lease.lock").write_text("taken\n")
    assert said(tmp_path, seen, chat=GOOD) == Farewell({"chat": GOOD}, True, False)


def test_a_lease_that_somebody_has_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "lease.lock").write_text("taken\n")
    seen = stamp()
    (tmp_path / "lease.json").write_text(json.dumps({}))
    assert said(tmp_path, seen).disturbed
    assert stamp().split() == [seen, "held"]


def test_the_first_lease_of_a_host_is_noticed(tmp_path: Path) -> None:
    assert stamp() == ""
    (tmp_path / "lease.lock").write_text("taken\n")
    assert said(tmp_path, "").disturbed
