"""Somebody else has a host while a run that leased it waits: at a prompt, suspended, for its batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.cli import prune
from rigup.connection import handshake
from rigup.connection.lease import Lease
from rigup.operations.service.history import RetainedRelease
from rigup.run import prune as pruning
from rigup.run import rollback
from rigup.run.multinode.groups import NodeGroups
from rigup.run.prune import PruneRun, Removal
from rigup.run.result import Change
from rigup.run.rollback import RollbackRun, ServiceRollback
from rigup.run.runner import Run
from tests.unit.run.test_runner import compared, three_folders
from tests.unit.run.test_runner_without_lease import (
    AT_WORK,
    DIFFERENT,
    OTHER,
    REBOOTED,
    WAS_HERE,
    somebody_else_is_at_work,
)

Make = Callable[..., Run]
FOLDERS = ["folder a", "folder b", "folder c"]


@pytest.fixture(autouse=True)
def on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(layout, "APPLY_RECORDS", str(tmp_path / "log/applies.jsonl"))


@pytest.fixture
def others() -> Iterator[list[Lease]]:
    """The leases of others, whose renewal ends with the test."""
    leases: list[Lease] = []
    yield leases
    for lease in leases:
        lease.release()


def expire(root: Path) -> None:
    now = int(Path("/proc/uptime").read_text().partition(".")[0])
    (root / "run/lease/lease.seen").write_text(f"{now - 61}\n")


def somebody_else_applies(run: Run, root: Path, does: Callable[[], object]) -> None:
    """From beginning to end, after this run's lease has expired."""
    expire(root)
    other = Lease(run.context.leases["box"].host, OTHER)
    other.take()
    does()
    other.release()


def reboot(root: Path) -> None:
    """Takes away what a reboot does."""
    for each in (root / "run/lease").iterdir():
        each.unlink()


def errors(run: Run) -> list[str]:
    return [error.message for error in run.results["box"].errors]


def test_after_somebody_elses_apply_nothing_is_changed_that_still_differs(local_run: Make, tmp_path: Path) -> None:
    with local_run({"box": three_folders}) as run:
        assert compared(run, lease=True) == {"box": FOLDERS}
        somebody_else_applies(run, tmp_path, lambda: (tmp_path / "box/a").mkdir(mode=0o755))
        run.execute()
    assert errors(run) == [f"{WAS_HERE}{DIFFERENT}"]
    assert (run.results["box"].state, run.results["box"].changes) == ("failed", [])
    assert [path.name for path in (tmp_path / "box").iterdir()] == ["a"]
    assert not (tmp_path / "run/lease/lease.json").exists()


def test_what_somebody_else_has_put_right_meanwhile_is_right(local_run: Make, tmp_path: Path) -> None:
    with local_run({"box": three_folders}) as run:
        compared(run, lease=True)
        somebody_else_applies(run, tmp_path, lambda: [(tmp_path / "box" / n).mkdir(mode=0o755) for n in "abc"])
        run.execute()
    assert (run.results["box"].state, errors(run)) == ("unchanged", [])


def test_a_host_that_somebody_else_is_changing_by_now_is_left_alone(local_run: Make, tmp_path: Path) -> None:
    with local_run({"box": three_folders}) as run:
        compared(run, lease=True)
        somebody_else_is_at_work(tmp_path)
        run.execute()
    (error,) = errors(run)
    assert AT_WORK in error
    assert list((tmp_path / "box").iterdir()) == []


def test_a_lease_that_expired_and_that_nobody_took_is_taken_up_again(local_run: Make, tmp_path: Path) -> None:
    with local_run({"box": three_folders}) as run:
        compared(run, lease=True)
        expire(tmp_path)
        run.execute()
    assert [change.step for change in run.results["box"].changes] == FOLDERS


def test_a_host_that_was_rebooted_while_it_waited_is_compared_again_and_changed(
    local_run: Make, tmp_path: Path
) -> None:
    with local_run({"box": three_folders}) as run:
        compared(run, lease=True)
        reboot(tmp_path)
        (tmp_path / "box/b").mkdir(mode=0o755)
        run.execute()
    assert [change.step for change in run.results["box"].changes] == ["folder a", "folder c"]
    assert (run.results["box"].state, errors(run)) == ("changed", [])


def test_a_host_that_was_rebooted_is_not_said_to_have_had_somebody_else(local_run: Make, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "box/a").mkdir(mode=0o755)
    with local_run({"box": three_folders}) as run:
        assert compared(run, lease=True) == {"box": FOLDERS[1:]}
        reboot(tmp_path)
        (tmp_path / "box/a").rmdir()
        run.execute()
    assert errors(run) == [f"{REBOOTED}{DIFFERENT}"]
    assert list((tmp_path / "box").iterdir()) == []


def test_a_host_that_serves_with_others_and_was_rebooted_is_refused_as_such(local_run: Make, tmp_path: Path) -> None:
    with local_run({"box": three_folders}) as run:
        compared(run, lease=True)
        run.context.groups = NodeGroups([("box", "other")])
        reboot(tmp_path)
        run.execute()
    assert errors(run) == [REBOOTED]


@pytest.mark.parametrize("rolling", [False, True])
def test_a_host_that_somebody_had_since_it_was_greeted_is_probed_again(
    local_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rolling: bool
) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_text("before")
    probe = f"probe() {{ echo os debian-12; echo kernel $(cat {kernel}); }}\nnvidia() {{ :; }}"
    with local_run({"box": lambda root: None}) as run:
        monkeypatch.setattr(handshake, "probe_definitions", lambda: probe)
        (tmp_path / "run/lease").mkdir(parents=True)
        somebody_else_is_at_work(tmp_path)
        run.context.connections.begin()
        run.context.connections._begun["box"].join()
        kernel.write_text("after")
        (tmp_path / "run/lease/lease.json").unlink()
        (tmp_path / "run/lease/lease.lock").write_text("taken again\n")
        run.connect(take_lease=rolling)
        run.compare(take_lease=True)
        found = run.results["box"].probe
    assert found is not None and found.kernel == "after"


def waiting_prune(run: Run, root: Path, *names: str) -> PruneRun:
    """A prune that has shown these builds, which are there but for "none", and waits for an answer."""
    run.__class__ = PruneRun
    assert isinstance(run, PruneRun)
    run.connect(take_lease=True)
    for name in names:
        if name != "none":
            (root / "builds" / name).mkdir(parents=True)
    run.found = {"box": tuple(Removal(f"build {name}", str(root / "builds" / name), 1) for name in names)}
    run.results["box"].changes = [Change("prune", removal.text) for removal in run.found["box"]]
    run.results["box"].state = "differs"
    return run


def test_prune_takes_nothing_away_once_its_lease_is_broken(
    local_run: Make, tmp_path: Path, others: list[Lease]
) -> None:
    with local_run({"box": three_folders}) as run:
        pruner = waiting_prune(run, tmp_path, "vllm-1")
        others.append(Lease(run.context.leases["box"].host, OTHER, may_break=True))
        others[0].take()
        pruner.remove()
    (error,) = errors(run)
    assert AT_WORK in error
    assert (tmp_path / "builds/vllm-1").exists()
    assert prune.as_json(pruner)["hosts"][0]["removed"] == []


def test_prune_stops_before_the_next_removal_when_its_lease_is_broken(
    local_run: Make, tmp_path: Path, others: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away = pruning._take_away

    def then_lost(host: Any, removal: Removal) -> None:
        take_away(host, removal)
        others.append(Lease(host, OTHER, may_break=True))
        others[0].take()
        run.context.leases["box"].renew()

    monkeypatch.setattr(pruning, "_take_away", then_lost)
    with local_run({"box": three_folders}) as run:
        pruner = waiting_prune(run, tmp_path, "vllm-1", "vllm-2")
        pruner.remove()
    (error,) = errors(run)
    assert error.startswith(f"box: {OTHER} ")
    assert [path.name for path in (tmp_path / "builds").iterdir()] == ["vllm-2"]


def test_prune_looks_again_where_somebody_else_has_been_and_leaves_what_is_needed_by_now(
    local_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_run({"box": three_folders}) as run:
        pruner = waiting_prune(run, tmp_path, "vllm-1", "vllm-2")
        somebody_else_applies(run, tmp_path, lambda: None)
        needless, new = pruner.found["box"][1], Removal("build new", str(tmp_path / "builds/new"), 1)
        monkeypatch.setattr(pruner, "_removals", lambda host: (needless, new))
        pruner.remove()
    assert [change.step for change in run.results["box"].changes] == ["build vllm-2, 1 B"]
    assert [path.name for path in (tmp_path / "builds").iterdir()] == ["vllm-1"]


def test_what_prune_removed_before_it_failed_is_said(local_run: Make, tmp_path: Path) -> None:
    with local_run({"box": three_folders}) as run:
        pruner = waiting_prune(run, tmp_path, "vllm-1", "none")
        pruner.remove()
    (row,) = prune.as_json(pruner)["hosts"]
    assert row["state"] == "failed"
    assert row["removed"] == [{"what": "build vllm-1", "path": str(tmp_path / "builds/vllm-1"), "bytes": 1}]


def waiting_rollback(run: Run, done: list[int], monkeypatch: pytest.MonkeyPatch) -> RollbackRun:
    run.__class__ = RollbackRun
    assert isinstance(run, RollbackRun)
    run.connect(take_lease=True)
    monkeypatch.setattr(rollback, "roll_back", lambda host, wanted, *_: done.append(wanted.number))
    run.steps = {
        "box": tuple(ServiceRollback(None, RetainedRelease(name, 1, 0, False, True, {})) for name in ("chat", "code"))
    }
    run.results["box"].state = "differs"
    return run


def test_a_rollback_goes_host_by_host_where_gateways_send_them_requests(
    local_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Drains:
        def carry_out(self, batch: list[str], change: Callable[[], object]) -> None:
            told.append(batch)
            change()
            told.append([run.results[name].state for name in batch])

    told: list[list[str]] = []
    drains: Any = Drains()
    with local_run({"box": three_folders}) as run:
        waiting_rollback(run, [], monkeypatch).go_back(drains)
    assert told == [["box"], ["changed"]]


def test_rollback_puts_nothing_back_once_its_lease_is_broken(
    local_run: Make, others: list[Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    with local_run({"box": three_folders}) as run:
        back = waiting_rollback(run, done, monkeypatch)
        others.append(Lease(run.context.leases["box"].host, OTHER, may_break=True))
        others[0].take()
        back.go_back()
    (error,) = errors(run)
    assert AT_WORK in error
    assert done == []


def test_rollback_puts_nothing_back_where_somebody_else_has_been(
    local_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    with local_run({"box": three_folders}) as run:
        back = waiting_rollback(run, done, monkeypatch)
        somebody_else_applies(run, tmp_path, lambda: None)
        back.go_back()
    assert errors(run) == [WAS_HERE]
    assert done == []


def test_rollback_begins_no_further_step_when_its_lease_is_broken(
    local_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def then_lost(host: Any, wanted: RetainedRelease, *_: Any) -> None:
        done.append(wanted.number)
        (tmp_path / "run/lease/lease.json").write_text(json.dumps(OTHER._asdict()))
        run.context.leases["box"].renew()

    with local_run({"box": three_folders}) as run:
        back = waiting_rollback(run, done, monkeypatch)
        monkeypatch.setattr(rollback, "roll_back", then_lost)
        back.go_back()
    (error,) = errors(run)
    assert error.startswith(f"box: {OTHER} ")
    assert done == [1]
    assert run.results["box"].changes == [Change("service", "release 1 of chat")]
