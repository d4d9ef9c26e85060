"""What an apply leaves behind, on the host and on this machine."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rigup import __version__, layout
from rigup.cli import log
from rigup.cli.output.console import Console
from rigup.connection.lease import myself
from rigup.errors import InputError
from rigup.facts.apply_records import parse
from rigup.run import audit_log
from rigup.run.audit_log import kept_here
from rigup.run.runner import Run
from tests.unit.run.test_runner import broken, compared, three_folders

Make = Callable[..., Run]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(layout, "APPLY_RECORDS", str(tmp_path / "log/applies.jsonl"))
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


def line(**said: object) -> str:
    """A record of an apply as it is kept."""
    made = audit_log.ApplyRecord(
        "box", "2026-11-21 20:15:00 UTC", "ada", "apply", "unchanged", 1.0, "0.1", "", "", {}, (), ()
    )
    return json.dumps(made.as_json() | said) + "\n"


def test_the_hosts_file_does_not_grow_for_ever(local_run: Make, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "KEPT", 3)
    places.parent.mkdir()
    places.write_text("".join(line(number=number) for number in range(6)))
    applied(local_run({"box": three_folders}))
    assert [record.get("number") for record in parse(places.read_text())] == [4, 5, None]


def test_others_than_root_and_its_owner_cannot_read_records(local_run: Make, places: Path) -> None:
    applied(local_run({"box": three_folders}))
    files = (places, places.with_name(f"{places.name}.lock"), audit_log.here("box"))
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600] * 3
    for path in files:
        path.chmod(0o644)  # as earlier versions wrote them
    applied(local_run({"box": three_folders}))
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600] * 3
    assert places.parent.stat().st_mode & 0o777 == 0o755


def test_a_line_that_is_not_whole_is_passed_over() -> None:
    cut = '{"schema": 1, "ho\n[]\n{"schema": 2}\n{"schema": 1, "host": "box"}\n'
    assert parse(cut + line() + line(schema=2)) == [json.loads(line())]


@pytest.mark.parametrize(
    "said",
    [{"services": []}, {"services": {"chat": 1}}, {"changes": {}}, {"errors": [None]}, {"seconds": "long"}, {"who": 7}],
)
def test_a_record_of_other_kinds_of_values_is_passed_over(said: dict[str, object]) -> None:
    assert parse(line(**said) + line()) == [json.loads(line())]


def test_a_damaged_byte_costs_its_line_at_most(places: Path) -> None:
    path = audit_log.here("box")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe{\n" + line().encode())
    assert kept_here("box") == [json.loads(line())]


def test_a_record_is_shown_as_it_is_whatever_a_host_says() -> None:
    file = io.StringIO()
    said = dict.fromkeys(("when", "who", "verb", "result", "rigup", "lock", "commit"), "[/x]")
    log.show(json.loads(line(**said)), Console(file=file, highlight=False))
    assert file.getvalue() == "[/x]  [/x] by [/x]: [/x] in 1.00 s\n  rigup [/x], lock [/x], commit [/x]\n"


def test_records_that_belong_to_somebody_else_are_said_to(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, **options: str) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", denied)
    with pytest.raises(InputError) as caught:
        kept_here("box")
    assert caught.value.message == f"{audit_log.here('box')}: Permission denied"
    assert str(caught.value.hint).endswith("; an apply under sudo makes root their owner")
