"""Whole runs, without SSH: facts are never stale, hosts never mixed up, and one host's failure stays its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import FactBase, deploy, operation
from pyinfra.operations import files

from rigup.connection import fact_cache
from rigup.errors import HostFailed, Unreachable
from rigup.operations.primitives.steps import step
from rigup.run import runner
from rigup.run.result import exit_code
from rigup.run.runner import Run
from tests.unit.connection.local_connector import LocalConnector

Make = Callable[..., Run]

AGAIN = "run the same command again"


@deploy("role")
def three_folders(root: Path) -> None:
    for name in ("a", "b", "c"):
        files.directory(name=f"folder {name}", path=str(root / name), mode="755")


@deploy("other")
def one_file(root: Path) -> None:
    files.put(name="a file", src=str(Path(__file__)), dest=str(root / "copy.py"), mode="644")


class Reads(FactBase[str]):
    """The text of a file, "" where there is none."""

    def command(self, path: str) -> str:
        return f"cat {path}"

    def process(self, output: list[str]) -> str:
        return "\n".join(output)


@operation()
def fails() -> Any:
    yield step(_fail)


def _fail(host: Any) -> None:
    raise HostFailed(f"{host.name}: it does not work", "think again")


@deploy("broken")
def broken(root: Path) -> None:
    files.directory(name="folder a", path=str(root / "a"))
    fails(name="a step that fails")
    files.directory(name="folder z", path=str(root / "z"))


@operation()
def downloads() -> Any:
    yield step(_download)


def _download(_: Any) -> None:
    raise Unreachable("source.tar.gz: connection refused", "check that this machine is online")


@deploy("engine")
def downloading(root: Path) -> None:
    downloads(name="a step that downloads on this machine")


def compared(run: Run, lease: bool = False) -> dict[str, list[str]]:
    """What a run would change, by host. lease: of what is to be changed, as apply takes it."""
    run.connect(take_lease=False)
    run.compare(take_lease=lease)
    return steps(run)


def steps(run: Run) -> dict[str, list[str]]:
    return {name: [change.step for change in result.changes] for name, result in run.results.items()}


def test_what_this_machine_cannot_download_leaves_the_host_reachable(local_run: Make) -> None:
    with local_run({"box": downloading}) as run:
        compared(run)
        run.execute()
        result = run.results["box"]
        assert result.state == "failed"
        assert result.errors[0].message.startswith("source.tar.gz: ")
        assert exit_code([result]) == 1


def test_hosts_with_different_roles_are_never_mixed_up(local_run: Make, tmp_path: Path) -> None:
    with local_run({"box": three_folders, "rig": one_file, "can": three_folders}) as run:
        folders = ["folder a", "folder b", "folder c"]
        assert compared(run) == {"box": folders, "rig": ["a file"], "can": folders}
        run.execute()
        assert steps(run) == {"box": folders, "rig": ["a file"], "can": folders}
        assert [change.role for change in run.results["rig"].changes] == ["other"]
    assert {path.name: sorted(p.name for p in path.iterdir()) for path in map(tmp_path.joinpath, run.results)} == {
        "box": ["a", "b", "c"],
        "rig": ["copy.py"],
        "can": ["a", "b", "c"],
    }


def test_what_one_host_does_wrong_neither_stops_nor_hides_another(local_run: Make, tmp_path: Path) -> None:
    LocalConnector.unreachable.add("off")
    with local_run({"bad": broken, "box": three_folders, "off": three_folders, "done": lambda root: None}) as run:
        compared(run)
        run.execute()
    states = {name: (result.state, [error.message for error in result.errors]) for name, result in run.results.items()}
    state, (message,) = states.pop("off")
    assert (state, message.startswith("off: ")) == ("unreachable", True)
    assert states == {
        "bad": ("failed", ["bad: it does not work"]),
        "box": ("changed", []),
        "done": ("unchanged", []),
    }
    assert steps(run)["bad"] == ["folder a"]
    assert not (tmp_path / "bad/z").exists()
    assert exit_code(list(run.results.values())) == 1


def test_what_a_machine_costs_is_said_once(local_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(runner, "report", lambda progress: said.append(progress.text))
    monkeypatch.setattr(runner, "link_notes", lambda plans, probe: iter(["no peer access"]))
    with local_run({"box": three_folders}) as run:
        compared(run, lease=True)
        run.execute()
    assert said.count("no peer access") == 1


def test_every_host_failing_is_said_of_every_host(local_run: Make) -> None:
    with local_run({"bad": broken, "worse": broken}) as run:
        compared(run)
        run.execute()
    assert [result.state for result in run.results.values()] == ["failed", "failed"]
    assert exit_code(list(run.results.values())) == 1


def test_what_changed_between_comparing_and_carrying_out_is_seen(local_run: Make, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "box/b").mkdir()
    with local_run({"box": three_folders}) as run:
        assert compared(run) == {"box": ["folder a", "folder c"]}
        (tmp_path / "box/b").rmdir()
        (tmp_path / "box/c").mkdir(mode=0o755)
        run.execute()
        assert steps(run) == {"box": ["folder a", "folder b"]}
    assert sorted(path.name for path in (tmp_path / "box").iterdir()) == ["a", "b", "c"]


def test_what_an_operation_changed_is_seen_by_the_next_one(local_run: Make, tmp_path: Path) -> None:
    path = tmp_path / "box/text"
    seen: list[str] = []

    @operation()
    def appends(word: str) -> Any:
        from pyinfra import host

        seen.append(host.get_fact(Reads, path=str(path)))
        yield f"echo {word} >> {path}"

    @deploy("role")
    def role(root: Path) -> None:
        appends(name="one", word="one")
        appends(name="two", word="two")

    (tmp_path / "box").mkdir()
    path.write_text("zero\n")
    with local_run({"box": role}) as run:
        compared(run)
        run.execute()
    assert seen == ["zero", "zero", "zero", "zero\none"]


def test_a_second_run_asks_in_one_command_what_the_first_asked_one_by_one(local_run: Make, tmp_path: Path) -> None:
    for _ in range(2):
        with local_run({"box": three_folders}) as run:
            compared(run, lease=True)
            run.execute()
    before = LocalConnector.commands.copy()
    LocalConnector.commands.clear()
    with local_run({"box": three_folders}) as run:
        assert compared(run, lease=True) == {"box": []}
        run.execute()
    assert len(before) > 9
    greeting, farewell = (command for _, command in LocalConnector.commands)
    assert "##rigup-who##" in greeting and farewell == "sh -s"
    assert not (tmp_path / "run/lease/lease.json").exists()
    assert (tmp_path / "questions").stat().st_mode & 0o777 == 0o600


def test_a_fact_that_cannot_be_read_fails_the_host_and_no_other(local_run: Make, tmp_path: Path) -> None:
    def reads(root: Path) -> None:
        from pyinfra import host

        host.get_fact(Reads, path=str(root / "missing"))

    with local_run({"box": reads, "rig": three_folders}) as run:
        compared(run)
    assert run.results["rig"].state == "differs"
    (error,) = run.results["box"].errors
    missing = tmp_path / "box/missing"
    assert error.message.startswith(f"box: Reads could not be read: cat {str(missing)[:20]}")
    assert error.message.endswith("No such file or directory")


def test_a_connection_that_is_lost_while_a_fact_is_read_fails_the_host(
    local_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LocalConnector._run

    def lost(self: Any, command: Any, **arguments: Any) -> Any:
        if (
            self.host.name == "box"
            and "stat" in str(command)
            and "-s" not in str(command)
            and "who" not in str(command)
        ):
            raise OSError("Socket is closed")
        return whole(self, command, **arguments)

    monkeypatch.setattr(LocalConnector, "_run", lost)
    with local_run({"box": three_folders, "rig": three_folders}) as run:
        compared(run)
    assert run.results["rig"].state == "differs"
    (error,) = run.results["box"].errors
    assert (error.message, error.hint) == (
        "box: connection lost (OSError: Socket is closed)",
        AGAIN,
    )


def test_a_fact_that_hangs_ends_and_fails_the_host(local_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hangs(FactBase[str]):
        command = "sleep 60"

    def hangs(root: Path) -> None:
        from pyinfra import host

        host.get_fact(Hangs)

    monkeypatch.setattr(fact_cache, "QUESTION_SECONDS", 0.2)
    with local_run({"box": hangs, "rig": three_folders}) as run:
        compared(run)
    assert [result.state for result in run.results.values()] == ["failed", "differs"]
    assert [error.message for error in run.results["box"].errors] == ["box: connection lost (TimeoutError)"]
