"""`rigup init`: what it writes, and what lies there where that cannot be planned or is refused."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rigup.cli import main
from rigup.cli.sessions import new_host
from rigup.errors import InputError
from rigup.facts.probe import Probe
from rigup.project import inventory_edit
from rigup.project.inventory_edit import FileEdit, written

RIG = {"gpus": [], "host_memory_gib": 64, "os": "debian-12"}
SERVICES = {"chat": {"model": "SmolLM2-135M-Instruct"}}
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; every box that is probed has 64 GiB and no GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new_host, "probe_host", lambda *_: Probe(os="debian-12", memory_kib=64 * 2**20))
    return tmp_path


def describe(root: Path, inventory: str, rig: dict[str, Any], services: dict[str, Any]) -> dict[str, bytes]:
    """Writes a fleet with one group, pairs, and returns all that lies there."""
    for folder in ("inventories", "group_data"):
        (root / folder).mkdir()
    (root / "inventories/home.py").write_text(inventory)
    (root / "group_data/pairs.py").write_text(f"rig = {rig!r}\nservices = {services!r}\n")
    return files(root)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"" for path in root.rglob("*")}


def test_a_first_host_is_written_and_plans(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["init", "box", "--group", "boxes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [file["path"] for file in said["files"]] == [".gitignore", "group_data/boxes.py", "inventories/boxes.py"]
    assert {plan["verdict"] for plan in said["plans"]} == {"ok"}


def test_a_hub_of_the_users_is_kept(fleet: Path) -> None:
    assert main.main(["init", "box", "--group", "boxes", "--hub", "http://hub.lan/"]) == 0
    assert 'hub = "http://hub.lan"\n' in (fleet / "group_data/boxes.py").read_text()


def test_what_cannot_be_planned_is_not_written(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = describe(fleet, 'pairs = ["one"]\n', RIG, {"chat": {"model": "nosuch"}})
    assert main.main(["init", "two", "--group", "pairs"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("rigup: nothing was written: group_data/pairs.py: services.chat.model: ")
    assert said.out == ""
    assert files(fleet) == before


def test_what_is_refused_is_written_and_told(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe(fleet, 'pairs = ["one", "two"]\n', RIG | {"hosts_per_service": 2}, SERVICES)
    assert main.main(["init", "three", "--group", "pairs"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("inventories/home.py: pairs: one host more\n")
    assert "hosts_per_service 2: three is left over" in " ".join(said.out.split())
    assert said.err == "three was still added to inventories/home.py, in group pairs\n"
    assert (fleet / "inventories/home.py").read_text() == 'pairs = ["one", "two", "three"]\n'


def test_of_several_files_all_are_written_or_none(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace = inventory_edit.replace_file

    def full(path: Path, content: bytes) -> None:
        if path.name == "boxes.py" and path.parent.name == "inventories":
            raise NO_SPACE
        replace(path, content)

    monkeypatch.setattr(inventory_edit, "replace_file", full)
    assert main.main(["init", "box", "--group", "boxes"]) == 2
    assert capsys.readouterr().err == (
        f"rigup: nothing was written: inventories/boxes.py: {NO_SPACE.strerror}\n"
        "hint: name another folder with --fleet\n"
    )
    assert files(fleet) == {}


@pytest.mark.parametrize("error", [InputError("no"), KeyboardInterrupt()], ids=["an error", "Ctrl-C"])
def test_files_that_were_there_are_put_back_as_they_were(fleet: Path, error: BaseException) -> None:
    mine = fleet / "home.py"
    mine.write_bytes(b"a = 1\r\n")
    mine.chmod(0o600)
    with (
        pytest.raises(type(error)),
        written([FileEdit(mine, "b", "added"), FileEdit(fleet / "new/er/x.py", "x", "new")]),
    ):
        assert (mine.read_text(), mine.stat().st_mode & 0o777) == ("b", 0o600)
        assert (fleet / "new/er/x.py").read_text() == "x"
        raise error
    assert files(fleet) == {"home.py": b"a = 1\r\n"}
    assert mine.stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_no_half_file(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise NO_SPACE

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=rf"x\.py: {NO_SPACE.strerror}"):
        FileEdit(fleet / "x.py", "x", "new").write()
    assert files(fleet) == {}
