"""A run that changes nothing takes no lease; what it read before somebody else had one does not count all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.connection.lease import Holder, myself
from rigup.facts.apply_records import parse
from rigup.run.audit_log import kept_here
from rigup.run.runner import Run
from tests.unit.run.test_runner import AGAIN, compared, three_folders

Make = Callable[..., Run]
OTHER = Holder("ada@desk", "2026-01-02 03:04:05 UTC", "another-machine", 4711, "1")
AT_WORK = f"{OTHER}, last heartbeat"  # in the message of who is refused
_COMPARED = " after it was compared"
WAS_HERE = f"box: another rigup run changed this host{_COMPARED}"
REBOOTED = f"box: the host was rebooted{_COMPARED}"
DIFFERENT = "; its pending changes are now different"


@pytest.fixture(autouse=True)
def on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(layout, "APPLY_RECORDS", str(tmp_path / "log/applies.jsonl"))
    return tmp_path / "log/applies.jsonl"


@pytest.fixture
def applied(local_run: Make) -> Make:
    """Makes runs on a host where everything is as it should be."""
    with local_run({"box": three_folders}) as run:
        compared(run, lease=True)
        run.execute()
    return local_run


def greeted(run: Run) -> None:
    """The host has been greeted, and nothing else has happened."""
    run.context.connections.begin()
    run.context.connections._begun["box"].join()


def somebody_else_applies(root: Path) -> None:
    """From beginning to end: takes folder b away, which is what it does with the lease."""
    (root / "box/b").rmdir()
    (root / "run/lease/lease.lock").write_text("taken\n")


def somebody_else_is_at_work(root: Path, holder: Holder = OTHER) -> None:
    (root / "run/lease/lease.lock").write_text("taken\n")
    (root / "run/lease/lease.json").write_text(json.dumps(holder._asdict()))
    (root / "run/lease/lease.seen").write_text(Path("/proc/uptime").read_text().partition(".")[0])


def test_a_host_that_needs_nothing_is_not_leased_and_is_on_record(applied: Make, on_record: Path) -> None:
    with applied({"box": three_folders}) as run:
        assert compared(run, lease=True) == {"box": []}
        run.execute()
        assert run.context.leases == {}
    assert run.results["box"].state == "unchanged"
    assert [record["result"] for record in parse(on_record.read_text())] == ["changed", "unchanged"]
    assert kept_here("box") == parse(on_record.read_text())


def test_what_was_learned_before_somebody_elses_apply_does_not_say_that_all_is_well(
    applied: Make, tmp_path: Path, on_record: Path
) -> None:
    with applied({"box": three_folders}) as run:
        greeted(run)
        somebody_else_applies(tmp_path)
        assert compared(run, lease=True) == {"box": []}
        run.execute()
    (error,) = run.results["box"].errors
    assert (error.message, error.hint) == (
        f"{WAS_HERE}{DIFFERENT}",
        AGAIN,
    )
    assert run.results["box"].state == "failed"
    assert run.results["box"].changes == []
    assert not (tmp_path / "box/b").exists()
    assert not (tmp_path / "run/lease/lease.json").exists()
    assert [record["result"] for record in parse(on_record.read_text())] == ["changed", "failed"]


def test_a_host_that_another_apply_has_left_as_it_should_be_is_compared_once_more(
    applied: Make, tmp_path: Path, on_record: Path
) -> None:
    with applied({"box": three_folders}) as run:
        assert compared(run, lease=True) == {"box": []}
        (tmp_path / "run/lease/lease.lock").write_text("taken\n")
        run.execute()
        assert list(run.context.leases) == ["box"]
    assert (run.results["box"].state, run.results["box"].errors) == ("unchanged", [])
    assert not (tmp_path / "run/lease/lease.json").exists()
    assert [record["result"] for record in parse(on_record.read_text())] == ["changed", "unchanged"]


def test_a_host_that_another_apply_has_had_twice_is_not_compared_for_ever(
    applied: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with applied({"box": three_folders}) as run:
        assert compared(run, lease=True) == {"box": []}
        (tmp_path / "run/lease/lease.lock").write_text("taken\n")
        again = run._compare_late

        def disturbed_again(*given: Any) -> None:
            again(*given)
            (tmp_path / "run/lease/lease.json").unlink()

        monkeypatch.setattr(run, "_compare_late", disturbed_again)
        run.execute()
    (error,) = run.results["box"].errors
    assert error.message == WAS_HERE


def test_what_was_learned_before_somebody_elses_apply_is_read_again_where_something_is_to_be_changed(
    applied: Make, tmp_path: Path
) -> None:
    (tmp_path / "box/c").rmdir()
    with applied({"box": three_folders}) as run:
        greeted(run)
        somebody_else_applies(tmp_path)
        assert compared(run, lease=True) == {"box": ["folder b", "folder c"]}
        assert (tmp_path / "run/lease/lease.json").exists()
        run.execute()
    assert run.results["box"].state == "changed"
    assert sorted(path.name for path in (tmp_path / "box").iterdir()) == ["a", "b", "c"]


def test_what_is_right_again_once_the_lease_is_taken_is_not_changed(applied: Make, tmp_path: Path) -> None:
    (tmp_path / "box/c").rmdir()
    with applied({"box": three_folders}) as run:
        greeted(run)
        (tmp_path / "box/c").mkdir(mode=0o755)
        (tmp_path / "run/lease/lease.lock").write_text("taken\n")
        assert compared(run, lease=True) == {"box": []}
        run.execute()
    assert run.results["box"].state == "unchanged"


def test_a_host_that_somebody_else_is_changing_is_refused_though_nothing_is_to_be_changed(
    applied: Make, tmp_path: Path
) -> None:
    somebody_else_is_at_work(tmp_path)
    with applied({"box": three_folders}) as run:
        compared(run, lease=True)
        run.execute()
    (error,) = run.results["box"].errors
    assert AT_WORK in error.message
    assert json.loads((tmp_path / "run/lease/lease.json").read_text())["who"] == "ada@desk"


def test_who_begins_to_change_it_after_the_greeting_is_named(applied: Make, tmp_path: Path) -> None:
    with applied({"box": three_folders}) as run:
        compared(run, lease=True)
        somebody_else_is_at_work(tmp_path)
        run.execute()
    (error,) = run.results["box"].errors
    assert AT_WORK in error.message


def test_what_somebody_held_who_is_gone_is_read_again(applied: Make, tmp_path: Path) -> None:
    somebody_else_is_at_work(tmp_path, myself()._replace(pid=2**22 + 1))
    with applied({"box": three_folders}) as run:
        greeted(run)
        (tmp_path / "box/b").rmdir()
        assert compared(run, lease=True) == {"box": ["folder b"]}


def test_looking_takes_no_lease_from_anybody(applied: Make, tmp_path: Path) -> None:
    somebody_else_is_at_work(tmp_path)
    with applied({"box": three_folders}) as run:
        assert compared(run) == {"box": []}
    assert run.results["box"].errors == []
