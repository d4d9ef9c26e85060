"""`rigup up` from an empty folder: to an answer, and to a folder that every other verb goes on with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.fleet import ANSWER, Fleet, Run

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "new hosts", "locking")]

MODEL = "SmolLM2-135M-Instruct"


class EmptyFolder:
    """An empty folder to run `rigup up` in, with the fleet's machine and hub.

    The lock of the toolkit pins an engine that takes minutes to compile; the site's, with a stand-in, takes its place.
    """

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self.host, self.folder = Fleet(fleet.lab, fleet.hub, folder, fleet.cache), fleet.host, folder
        toolkit = f"inventory.toolkit_root = lambda: Path({str(fleet.root)!r})"
        self.before = f"from pathlib import Path\nfrom rigup.project import inventory\n{toolkit}"
        self.options = ("--ssh-config", str(fleet.lab.machines[0].lab.ssh_config), "--hub", fleet.hub.url)

    def up(self, *words: str, terminal: int | None = None) -> Run:
        """Starts `rigup up` for the first machine."""
        given = ("up", self.host.name, *words, *self.options)
        return self.fleet.start(*given, before=self.before, terminal=terminal)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def empty(fleet: Fleet, tmp_path: Path) -> Iterator[EmptyFolder]:
    fleet.host.wipe()
    folder = tmp_path / "fleet"
    folder.mkdir()
    found = EmptyFolder(fleet, folder)
    yield found
    found.fleet.end_runs()


def test_one_command_and_nothing_to_do_for_the_next(empty: EmptyFolder) -> None:
    ours, terminal = os.openpty()
    run = empty.up(MODEL.lower(), terminal=terminal)
    run.wait_to_say("[y/N]")
    os.write(ours, b"y\n")
    assert run.wait() == 0, run.text
    os.close(ours)
    os.close(terminal)

    said = run.stdout.read_text()
    shown = [said.index(words) for words in ("rigup.lock: new", "cpu / chat", " to change", " a while")]
    assert shown == sorted(shown)
    assert "download 24.0 MB: " in said
    assert ANSWER in said
    assert empty.host.answers()
    inside = [".gitignore", "group_data/cpu.py", "inventories/cpu.py", "rigup.lock"]
    assert [name for name in empty.files() if not name.startswith("run")] == inside
    assert all(f"  {name}: new\n" in said[said.index("written here:") :] for name in inside)

    curl = next(line for line in said.splitlines() if line.startswith("  curl "))
    assert ANSWER in empty.host.machine.ssh(curl).stdout
    assert f"chat: http://127.0.0.1:8000/v1, through: ssh -F {empty.options[1]} -N -L" in said

    assert "no changes" in empty.fleet.rigup("apply").text
    empty.fleet.rigup("lock", "--check")
    assert "no changes" in empty.fleet.rigup("up", empty.host.name, MODEL).text
    other = empty.fleet.rigup("up", empty.host.name, "gpt-oss-20b", expect=2).text
    assert " chat, not gpt-oss-20b" in other


def test_a_hub_that_does_not_answer_leaves_no_trace(empty: EmptyFolder) -> None:
    run = empty.up("Qwen/NoSuch-Model", "--yes")
    assert run.wait() == 2, run.text
    assert run.text.count("hint: ") == 1
    assert [name for name in empty.files() if not name.startswith("run")] == []
    assert not empty.host.says("test -e /opt/rigup")


def test_a_host_that_cannot_be_reached(empty: EmptyFolder) -> None:
    empty.host.machine.cut()
    run = empty.up(MODEL, "--yes")
    assert run.wait() == 2, run.text
    assert [name for name in empty.files() if not name.startswith("run")] == []
