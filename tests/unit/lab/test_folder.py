"""Where the lab keeps things, for whom, and one `up` at a time."""

from __future__ import annotations

import os
import pwd
import threading
import time
from pathlib import Path

import pytest

from rigup.errors import InputError
from rigup.lab import folder
from rigup.lab.folder import LabFolder


def test_the_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder.lab_root() == tmp_path / "rigup" / "lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert folder.lab_root() == Path("/home/someone/.cache/rigup/lab")


def test_under_sudo_it_is_the_cache_folder_of_who_called(monkeypatch: pytest.MonkeyPatch) -> None:
    someone = pwd.getpwnam("nobody")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(someone.pw_uid))
    assert folder.lab_root() == Path(someone.pw_dir) / ".cache" / "rigup" / "lab"


def test_a_second_up_waits_for_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        waiting.set()
        with LabFolder("b").locked():
            order.append("second")

    with LabFolder("b").locked():
        thread = threading.Thread(target=second)
        thread.start()
        waiting.wait(60)
        thread.join(0.2)  # enough for it to run into the lock; a wrong lock would let it through
        order.append("first")
        (LabFolder("b").path / "lab.json").touch()
    thread.join(60)
    assert order == ["first", "second"]


def test_ups_that_wait_for_a_down_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    inside: set[int] = set()
    most: list[int] = []

    def up(number: int) -> None:
        with LabFolder("b").locked():
            inside.add(number)
            most.append(len(inside))
            time.sleep(0.05)  # as an image is built meanwhile, with the folder still empty
            inside.remove(number)

    with LabFolder("b").locked():
        threads = [threading.Thread(target=up, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        threads[0].join(0.2)
        folder.remove_tree(LabFolder("b").path)
    for thread in threads:
        thread.join(60)
    assert most == [1, 1, 1, 1]
    assert list(LabFolder("b").path.parent.iterdir()) == []


def test_a_sudo_user_whom_nobody_knows_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "3999999999")
    assert folder.caller() is None


def test_a_record_of_another_version_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = folder.make_folder(LabFolder("b").path)
    (path / "lab.json").write_text('{"name": "b", "shape": "round"}')
    with pytest.raises(
        InputError, match=f"^{path}/lab.json: the lab was created by another version of rigup$"
    ) as raised:
        LabFolder("b").record()
    assert raised.value.hint == "rigup lab down b"
    assert LabFolder("b").fields() == {"name": "b", "shape": "round"}
    (path / "lab.json").write_text('{"name": "b", ')
    assert LabFolder("b").fields() == {}


def test_an_up_that_failed_early_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ZeroDivisionError), LabFolder("b").locked():
        raise ZeroDivisionError
    assert not LabFolder("b").path.exists()
    assert folder.lab_folders() == []
