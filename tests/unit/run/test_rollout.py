"""Changes in batches: in which order, when they stop, and how another process goes on with them."""

from __future__ import annotations

import errno
import json
import os
from argparse import Namespace
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api import deploy, operation
from pyinfra.operations import files

from rigup.cli.apply import _check_rolling
from rigup.cli.output.console import Console
from rigup.cli.output.progress import PlainProgress
from rigup.cli.sessions.rollout import RollingApply, command
from rigup.connection.lease import Lease
from rigup.errors import HostFailed, InputError, Refused
from rigup.operations.primitives import jobs
from rigup.operations.primitives.steps import step
from rigup.project.inventory import HostEntry, Project
from rigup.run import audit_log, rollout_state
from rigup.run.multinode.groups import NodeGroups
from rigup.run.result import Change, HostResult, State, exit_code
from rigup.run.rollout import RolloutBatches, batches
from rigup.run.runner import Run
from tests.unit.connection.local_connector import LocalConnector

Make = Callable[..., Run]
ARGUMENTS: dict[str, Any] = {
    "inventory": None,
    "limit": None,
    "yes": True,
    "reboot": False,
    "remove": False,
    "source": None,
    "ask_sudo_password": False,
    "rolling": 2,
    "max_failures": None,
    "resume": False,
    "allow_outage": False,
}
DIFFERS, PENDING = "differs", "pending"
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NOT_SAVED = "cannot save the progress of the rollout"
FULL = f"/nowhere/at/all: {NO_SPACE.strerror}: {NOT_SAVED}"
NAMES = st.lists(st.integers(0, 99).map(lambda number: f"box{number}"), unique=True, max_size=12)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine keeps what it has done."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/rigup/rollouts"


class Hosts:
    """Stands for a run that was compared: what its hosts are, and what becomes of those that are worked on."""

    def __init__(self, found: dict[str, State], bad: Collection[str] = ()) -> None:
        self.results = {name: HostResult(name, state) for name, state in found.items()}
        self.context = SimpleNamespace(groups=NodeGroups())
        self.bad = bad
        self.executed: list[list[str]] = []

    def execute(self, names: Collection[str]) -> None:
        self.executed.append(list(names))
        for name in names:
            if name in self.bad:
                self.results[name].fail("failed", HostFailed(f"{name}: it does not start"))
            else:
                self.results[name].state = "changed" if self.results[name].state == DIFFERS else "unchanged"


class InMemory(rollout_state.SavedRollout):
    """What is noted, without a disk."""

    def __init__(self, names: Collection[str], states: dict[str, rollout_state.HostState] | None = None) -> None:
        parts = {
            name: rollout_state.HostProgress(plans="", state=(states or {}).get(name, "not begun")) for name in names
        }
        super().__init__(Path("/nowhere"), rollout_state.RolloutProgress(inventory="", began="", lock="", hosts=parts))
        self.path = Path("/nowhere/at/all")

    def _write(self) -> None: ...

    @property
    def states(self) -> dict[str, str]:
        return {name: part.state for name, part in self.rollout.hosts.items()}


def rolled(rolling: RolloutBatches) -> RolloutBatches:
    """A rollout carried out as far as it goes."""
    rolling.ask_the_rest()
    for batch in rolling.due():
        rolling.carry_out(batch)
    rolling.end()
    return rolling


@given(NAMES, st.integers(1, 14))
def test_the_canary_is_alone_and_nobody_comes_twice(names: list[str], size: int) -> None:
    made = batches(names, size)
    assert [name for batch in made for name in batch] == names
    assert [len(batch) for batch in made[:1]] == [1] * bool(names)
    assert all(1 <= len(batch) <= size for batch in made[1:])
    assert all(len(batch) == size for batch in made[1:-1])


def test_hosts_that_serve_together_are_changed_in_one_batch() -> None:
    run = Hosts(dict.fromkeys(("a1", "b1", "a2", "c", "b2", "d"), DIFFERS))  # type: ignore[arg-type]
    run.context.groups = NodeGroups([("a1", "a2"), ("b1", "b2")])
    rolling = RolloutBatches(run, InMemory(run.results), 2, 0)  # type: ignore[arg-type]
    assert rolling.batches == [["a1", "a2"], ["b1", "b2", "c"], ["d"]]


class Drains:
    """Stands for the gateways of a run: "gw" is one. spares: those that it can do without."""

    def __init__(self, run: Hosts, spares: Collection[str]) -> None:
        self.run, self.spares = run, spares

    def gateways(self, names: Collection[str]) -> list[str]:
        return [name for name in names if name == "gw"]

    def alone(self, unit: Collection[str]) -> bool:
        return "both" in unit

    def carry_out(self, names: Collection[str], change: Callable[[], object]) -> None:
        if not {*names} <= {*self.spares}:
            for name in names:
                self.run.results[name].fail("refused", HostFailed("nobody left"))
            return
        self.run.executed.append([f"drain {name}" for name in names])
        change()
        self.run.executed.append([f"ready {name}" for name in names])


def test_hosts_are_taken_out_of_their_gateways_which_come_first() -> None:
    run = Hosts(dict.fromkeys(("a", "b", "gw", "c", "d"), DIFFERS), ("b",))  # type: ignore[arg-type]
    drains: Any = Drains(run, "abd")
    rolling = rolled(RolloutBatches(run, InMemory(run.results), 2, 9, drains))  # type: ignore[arg-type]
    assert run.executed == [
        *(["drain a"], ["a"], ["ready a"]),
        *(["gw"], ["drain b"], ["b"], ["ready b"]),
    ]
    assert {name: result.state for name, result in run.results.items()} == {
        **{"a": "changed", "b": "failed", "gw": "changed"},
        **{"c": "refused", "d": "refused"},
    }
    assert rolling.failed == ["b", "c", "d"]


def test_a_gateway_that_serves_changes_by_itself() -> None:
    run = Hosts(dict.fromkeys(("a", "b", "both", "c", "d", "e"), DIFFERS))  # type: ignore[arg-type]
    drains: Any = Drains(run, "")
    rolling = RolloutBatches(run, InMemory(run.results), 2, 0, drains)  # type: ignore[arg-type]
    assert rolling.batches == [["a"], ["b"], ["both"], ["c", "d"], ["e"]]


HOSTS = st.dictionaries(
    st.integers(0, 30).map(lambda number: f"box{number}"),
    st.tuples(st.sampled_from([DIFFERS, DIFFERS, DIFFERS, PENDING, "unreachable", "refused"]), st.booleans()),
    max_size=12,
)


@given(HOSTS, st.integers(1, 5), st.integers(0, 4))
def test_no_batch_begins_after_more_failures_than_may_be(
    hosts: dict[str, tuple[Any, bool]], size: int, max_failures: int
) -> None:
    run = Hosts({name: found for name, (found, _) in hosts.items()}, {name for name, (_, bad) in hosts.items() if bad})
    kept = InMemory(run.results)
    failures_before: list[int] = []
    rolling = RolloutBatches(run, kept, size, max_failures)  # type: ignore[arg-type]
    rolling.ask_the_rest()
    for batch in rolling.due():
        failures_before.append(len(rolling.failed))
        rolling.carry_out(batch)
    rolling.end()

    assert all(count <= max_failures for count in failures_before)
    stopped = len(rolling.failed) > max_failures
    assert rolling.begun == rolling.batches or stopped, "nothing else stops it"
    assert len(rolling.failed) <= max_failures + size or not rolling.begun
    changed = [name for batch in rolling.begun for name in batch]
    assert len(set(changed)) == len(changed)
    assert {name for name in changed if run.results[name].state == "changed"} | set(rolling.failed) >= set(changed)
    not_begun = {name for name, result in run.results.items() if result.state == "not begun"}
    assert not_begun == {name for name, (found, _) in hosts.items() if found == DIFFERS} - set(changed)
    assert all(result.state not in (DIFFERS, PENDING) for result in run.results.values())
    if rolling.begun:
        expected = {name: "done" if result.ok else "failed" for name, result in run.results.items()}
        assert kept.states == expected | dict.fromkeys(not_begun, "not begun")


@given(NAMES, st.data())
def test_resuming_begins_where_it_went_wrong(names: list[str], data: st.DataObject) -> None:
    states = data.draw(
        st.fixed_dictionaries({n: st.sampled_from(["not begun", "begun", "done", "failed"]) for n in names})
    )
    ordered = InMemory(names, states).in_order(names)
    cut_short = [name for name in names if states[name] in ("begun", "failed")]
    assert ordered == cut_short + [name for name in names if name not in cut_short]


def test_ctrl_c_begins_no_other_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Hosts(dict.fromkeys(("a", "b", "c"), DIFFERS))  # type: ignore[arg-type]
    rolling = RolloutBatches(run, InMemory(run.results), 1, 0)  # type: ignore[arg-type]
    for batch in rolling.due():
        rolling.carry_out(batch)
        monkeypatch.setattr(jobs, "_cancelled", True)
    rolling.end()
    assert run.executed == [["a"]]
    assert [result.state for result in run.results.values()] == ["changed", "not begun", "not begun"]


def project(tmp_path: Path, *names: str) -> Project:
    return Project(tmp_path, tmp_path / "inventories/lan.py", tuple(HostEntry(name, "boxes") for name in names))


def test_what_is_kept_is_read_again_until_all_are_done(tmp_path: Path, state: Path) -> None:
    fleet = project(tmp_path, "a", "b")
    plans: dict[str, tuple[Any, ...]] = {"a": (), "b": ()}
    kept = rollout_state.start(fleet, plans)
    assert not kept.exists and rollout_state.unfinished(fleet) is None
    kept.save(["a"], "done")
    kept.save(["b"], "failed", {"b": "b: it does not start"})
    (path,) = state.iterdir()
    assert (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077) == (0, 0)

    resumed = rollout_state.resume(fleet, plans)
    assert {name: (part.state, part.why) for name, part in resumed.rollout.hosts.items()} == {
        "a": ("done", ""),
        "b": ("failed", "b: it does not start"),
    }
    assert resumed.in_order(["a", "b"]) == ["b", "a"]
    resumed.save(["b"], "done")
    assert list(state.iterdir()) == []
    with pytest.raises(InputError) as caught:
        rollout_state.resume(fleet, plans)
    assert caught.value.message == f"--resume: no rollout of {fleet.inventory} is unfinished"


class NodeCommand:
    """Stands for a plan, of which a rollout knows no more than that it is the same or not."""

    def __init__(self, words: str) -> None:
        self.words = words

    def model_dump_json(self) -> str:
        return json.dumps(self.words)


def test_another_lock_another_plan_or_another_host_is_another_rollout(tmp_path: Path) -> None:
    fleet = project(tmp_path, "a", "b")
    lock = tmp_path / "rigup.lock"
    lock.write_text("schema = 1\n")
    plans: dict[str, Any] = {"a": [NodeCommand("one")], "b": [NodeCommand("one")]}
    kept = rollout_state.start(fleet, plans)
    kept.save(["a"], "begun")
    said = f"--resume: the rollout of {kept.rollout.began} started"

    assert rollout_state.resume(fleet, {"b": plans["b"]}).rollout == kept.rollout, "--limit may leave hosts out"
    for changed, expected in (
        ({**plans, "b": [NodeCommand("two")]}, f"{said} with another plan for b"),
        ({**plans, "c": []}, f"{said} without c"),
    ):
        with pytest.raises(Refused) as caught:
            rollout_state.resume(fleet, changed)
        assert caught.value.message == expected
    lock.write_text("schema = 1\n# another\n")
    with pytest.raises(Refused) as caught:
        rollout_state.resume(fleet, plans)
    assert caught.value.message.startswith(f"{said} with another rigup.lock: sha256 ")
    assert caught.value.hint == "restore that lock, or omit --resume to start again"


def test_a_file_that_is_not_a_rollout_and_a_folder_that_cannot_be_written_are_said(tmp_path: Path, state: Path) -> None:
    fleet = project(tmp_path, "a")
    state.mkdir(parents=True)
    rollout_state.state_file(fleet).write_text('{"half')
    with pytest.raises(InputError, match="not a valid rollout state file"):
        rollout_state.unfinished(fleet)
    rollout_state.state_file(fleet).unlink()
    state.rmdir()
    state.write_text("a file where the folder should be")
    with pytest.raises(InputError, match=NOT_SAVED):
        rollout_state.start(fleet, {"a": ()}).save(["a"], "begun")


class Full(InMemory):
    """A disk on which there is no room any more from the write of this number on."""

    def __init__(self, names: Collection[str], room_for: int) -> None:
        super().__init__(names)
        self.room = room_for

    def _write(self) -> None:
        self.room -= 1
        if self.room < 0:
            raise NO_SPACE


def test_a_full_disk_lets_no_batch_begin_and_hides_nothing_that_was_changed() -> None:
    run = Hosts(dict.fromkeys(("a", "b", "c"), DIFFERS))  # type: ignore[arg-type]
    rolling = rolled(RolloutBatches(run, Full(run.results, 3), 1, 0))  # type: ignore[arg-type]
    assert run.executed == [["a"]]
    assert [result.state for result in run.results.values()] == ["changed", "not begun", "not begun"]
    assert rolling.not_saved is not None and rolling.not_saved.message == FULL


class FullOnce(InMemory):
    """A disk on which there was no room for the write of this number, and is again."""

    def __init__(self, names: Collection[str], number: int) -> None:
        super().__init__(names)
        self.number = number

    def _write(self) -> None:
        self.number -= 1
        if self.number == 0:
            raise NO_SPACE


def test_why_a_rollout_stopped_is_told_although_there_is_room_again() -> None:
    run = Hosts(dict.fromkeys(("a", "b", "c"), DIFFERS))  # type: ignore[arg-type]
    kept = FullOnce(run.results, 6)  # with the beginning of the second batch
    rolling = rolled(RolloutBatches(run, kept, 2, 0))  # type: ignore[arg-type]
    assert (run.executed, rolling.failed) == ([["a"]], [])
    assert rolling.not_saved is not None and rolling.not_saved.message == FULL
    assert kept.states == {"a": "done", "b": "not begun", "c": "not begun"}
    assert kept.in_order(["a", "b", "c"]) == ["a", "b", "c"], "none of them was cut short"


def test_what_could_not_be_kept_and_then_was_stops_nothing() -> None:
    run = Hosts(dict.fromkeys(("a", "b", "c"), DIFFERS))  # type: ignore[arg-type]
    kept = FullOnce(run.results, 4)  # with what came of the first batch
    rolling = rolled(RolloutBatches(run, kept, 2, 0))  # type: ignore[arg-type]
    assert (run.executed, rolling.not_saved) == ([["a"], ["b", "c"]], None)
    assert set(kept.states.values()) == {"done"}


def test_on_a_disk_that_is_full_from_the_beginning_nothing_is_changed() -> None:
    run = Hosts(dict.fromkeys(("a", "b"), DIFFERS))  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        rolled(RolloutBatches(run, Full(run.results, 0), 1, 0))  # type: ignore[arg-type]
    assert caught.value.message == FULL
    assert run.executed == []


def test_what_could_not_be_kept_is_said_with_what_was_changed(
    local_run: Make, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: full() if (tmp_path / "one/a").exists() else None)

    def full() -> None:
        raise NO_SPACE

    run = local_run({"one": role, "two": role})
    rolling, said = applied(run, run.context.project)
    assert [result.state for result in run.results.values()] == ["changed", "not begun"]
    path = rollout_state.state_file(run.context.project)
    message = f"{path}: {NO_SPACE.strerror}: {NOT_SAVED}"
    assert said.splitlines()[-6:] == [
        f"{message}; free disk space, or set XDG_STATE_HOME to another folder",
        "",
        "rollout stopped: 0 hosts failed, none allowed",
        "  done       one",
        "  not begun  two",
        "next: rigup apply --yes --rolling 2 --resume",
    ]
    assert rolling.outcome()["not_kept"] == message
    assert exit_code(list(run.results.values())) == 1


@operation()
def fails_while_told_to(marker: Path) -> Any:
    def fail(host: Any) -> None:
        if marker.exists():
            raise HostFailed(f"{host.name}: it does not start; it goes on as before", "mend it")

    if marker.exists():
        yield step(fail)


@deploy("service")
def role(root: Path) -> None:
    files.directory(name="release of chat", path=str(root / "a"))
    fails_while_told_to(name="start", marker=root / "broken")


def applied(run: Run, fleet: Project, **given: Any) -> tuple[RollingApply, str]:
    """A rolling apply as the command does it, and what it said."""
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    with run, console.file:
        rolling = RollingApply(Namespace(**{**ARGUMENTS, **given}), fleet, run, console)
        run.connect(take_lease=True)
        run.compare()
        rolling.begins()
        rolling.carry_out(PlainProgress())
        rolling.show_end()
        return rolling, console.export_text()


def test_stopped_mended_and_resumed_with_what_to_type(local_run: Make, tmp_path: Path) -> None:
    names = ("one", "two", "three", "four")
    make: Callable[[], Run] = lambda: local_run(dict.fromkeys(names, role))  # noqa: E731
    run = make()
    (tmp_path / "two/broken").touch()
    rolling, said = applied(run, run.context.project, rolling=2)

    assert [result.state for result in run.results.values()] == ["changed", "failed", "changed", "not begun"]
    assert exit_code(list(run.results.values())) == 1
    assert said.splitlines()[:3] == ["canary: one", "batch 1: two, three", "batch 2: four"]
    assert said.partition("\nrollout")[2].splitlines() == [
        " stopped: 1 host failed, none allowed",
        "  done       one, three",
        "  failed     two: it does not start; it goes on as before",
        "  not begun  four",
        "next: repair two, then run: rigup apply --yes --rolling 2 --resume",
    ]
    assert rolling.outcome() == {
        "rolling": 2,
        "max_failures": 0,
        "batches": [["one"], ["two", "three"]],
        "done": ["one", "three"],
        "failed": {"two": "two: it does not start; it goes on as before"},
        "not_begun": ["four"],
        "not_kept": None,
        "next": "rigup apply --yes --rolling 2 --resume",
    }
    assert [audit_log.kept_here(name)[-1]["result"] for name in names[:3]] == ["changed", "failed", "changed"]
    assert audit_log.kept_here("four") == []

    (tmp_path / "two/broken").unlink()
    (tmp_path / "two/a").rmdir()
    run = make()
    rolling, said = applied(run, run.context.project, rolling=2, resume=True)
    assert rolling.outcome()["batches"] == [["two"], ["four"]]
    assert rolling.outcome()["next"] is None
    assert "next:" not in said and "rollout" not in said
    assert rollout_state.unfinished(run.context.project) is None


def test_unreachable_hosts_count_before_anything_is_begun(local_run: Make, tmp_path: Path) -> None:
    LocalConnector.unreachable.add("off")
    run = local_run({"box": role, "off": role})
    rolling, said = applied(run, run.context.project)
    assert [result.state for result in run.results.values()] == ["not begun", "unreachable"]
    assert not (tmp_path / "box/a").exists()
    assert said.splitlines()[-1] == "next: repair off, then run: rigup apply --yes --rolling 2"
    assert rollout_state.unfinished(run.context.project) is None

    run = local_run({"box": role, "off": role})
    rolling, said = applied(run, run.context.project, max_failures=1)
    assert [result.state for result in run.results.values()] == ["changed", "unreachable"]
    assert "rollout ended: 1 host failed, 1 allowed" in said
    assert rolling.outcome()["next"] == "rigup apply --yes --rolling 2 --max-failures 1 --resume"


def test_a_new_one_in_place_of_one_that_waits_is_said(local_run: Make, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "box/broken").touch()
    for _ in range(2):
        run = local_run({"box": role})
        _, said = applied(run, run.context.project)
    assert said.startswith("replacing the unfinished rollout of 20")
    assert said.splitlines()[0].endswith(" UTC (--resume would continue it)")


def test_who_loses_its_lease_changes_nothing_more(local_run: Make, tmp_path: Path) -> None:
    run: Run

    @operation()
    def breaks_the_lease() -> Any:
        def take(host: Any) -> None:
            other = dict(who="ada@desk", since="2026-01-02 03:04:05 UTC", machine="m", pid=7, started="1")
            (tmp_path / "run/lease/lease.json").write_text(json.dumps(other))
            run.context.leases["box"].renew()

        yield step(take)

    @deploy("service")
    def changed_elsewhere(root: Path) -> None:
        breaks_the_lease(name="first")
        files.directory(name="second", path=str(root / "never"))

    run = local_run({"box": changed_elsewhere})
    with run:
        run.connect(take_lease=True)
        run.compare()
        run.execute()
        (error,) = run.results["box"].errors
    assert error.message.startswith("box: ada@desk (process 7) since 2026-01-02 03:04:05 UTC ")
    assert run.results["box"].changes == [Change("service", "first")]
    assert not (tmp_path / "box/never").exists()


def test_a_host_whose_connection_went_while_it_waited_is_reached_again(
    local_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = iter([OSError("Socket is closed")])
    claim = Lease.claim

    def lost_once(lease: Lease) -> str:
        if run.context.state.is_executing and (error := next(claims, None)):
            raise error
        return claim(lease)

    monkeypatch.setattr(Lease, "claim", lost_once)
    run = local_run({"box": role})
    applied(run, run.context.project)
    assert run.results["box"].state == "changed"


def test_what_to_type_has_what_was_typed() -> None:
    given = ARGUMENTS | {
        "inventory": "my fleet.py",
        "limit": "quad*",
        "reboot": True,
        "max_failures": 3,
        "source": "my wheels",
    }
    assert command(Namespace(**given), True) == (
        "rigup apply 'my fleet.py' --limit 'quad*' --yes --reboot --from 'my wheels' --rolling 2"
        " --max-failures 3 --resume"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rolling": None, "resume": True}, "--resume requires --rolling"),
        ({"rolling": None, "max_failures": 0}, "--max-failures requires --rolling"),
        ({"rolling": 0}, "--rolling: 0: must be 1 or more"),
        ({"rolling": 2, "max_failures": -1}, "--max-failures: -1: must be 0 or more"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _check_rolling(Namespace(**ARGUMENTS | given))
    assert caught.value.message == message
