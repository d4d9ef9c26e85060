"""What an apply leaves behind, on the host and on this machine."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rigup import __version__
from rigup.fleet import records
from rigup.fleet.lease import myself
from rigup.fleet.records import kept_here, parse
from rigup.fleet.runner import Run
from tests.unit.fleet.test_runs import broken, compared, three_folders

Make = Callable[..., Run]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(records, "ON_HOST", str(tmp_path / "log/applies.jsonl"))
    return tmp_path / "log/applies.jsonl"


def applied(run: Run) -> None:
    with run:
        compared(run, lease=True)
        run.execute()


def test_an_apply_leaves_the_same_record_on_both_sides(local_run: Make, places: Path, tmp_path: Path) -> None:
    (tmp_path / "rigup.lock").write_text("schema = 1\n")
    applied(local_run({"box": three_folders}))
    applied(local_run({"box": three_folders}))
    first, second = parse(places.read_text())
    assert kept_here("box") == [first, second]
    assert {key: first[key] for key in ("schema", "host", "who", "verb", "result", "rigup", "lock", "commit")} == {
        "schema": 1,
        "host": "box",
        "who": myself().who,
        "verb": "apply",
        "result": "changed",
        "rigup": __version__,
        "lock": hashlib.sha256(b"schema = 1\n").hexdigest()[:16],
        "commit": "",
    }
    assert first["changes"] == ["role: folder a", "role: folder b", "role: folder c"]
    assert (second["result"], second["changes"], second["errors"]) == ("unchanged", [], [])


def test_a_failure_is_on_record_with_what_was_done_before_it(local_run: Make, places: Path) -> None:
    applied(local_run({"bad": broken}))
    (record,) = parse(places.read_text())
    assert (record["result"], record["changes"]) == ("failed", ["broken: folder a"])
    assert record["errors"] == ["bad: it does not work"]


def test_looking_leaves_no_record(local_run: Make, places: Path) -> None:
    with local_run({"box": three_folders}) as run:
        compared(run, lease=True)
    assert not places.exists()
    assert kept_here("box") == []


def test_the_commit_of_the_fleet_folder_is_named(local_run: Make, places: Path, tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "rigup.lock").write_text("schema = 1\n")
    subprocess.run([*git, "add", "rigup.lock"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "a"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    applied(local_run({"box": three_folders}))
    (tmp_path / "rigup.lock").write_text("schema = 1 \n")
    applied(local_run({"box": three_folders}))
    assert [record["commit"] for record in parse(places.read_text())] == [head, f"{head}-dirty"]


def test_the_hosts_file_does_not_grow_for_ever(local_run: Make, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "KEPT", 3)
    places.parent.mkdir()
    places.write_text("".join(json.dumps({"schema": 1, "number": number}) + "\n" for number in range(6)))
    applied(local_run({"box": three_folders}))
    assert [record.get("number") for record in parse(places.read_text())] == [4, 5, None]


def test_a_line_that_was_cut_short_is_passed_over() -> None:
    assert parse('{"schema": 1, "host": "box"}\n{"schema": 1, "ho\n[]\n{"schema": 2}\n') == [
        {"schema": 1, "host": "box"}
    ]
