"""What a host was when a release last answered, noted in the release and compared when it answers no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.errors import HostFailed
from rigup.operations.primitives import remote
from rigup.operations.service import health, held
from rigup.operations.service.held import changed_since, note_held
from rigup.operations.service.releases import mark_healthy, stage
from rigup.operations.service.reply import Reply
from rigup.systemd.release import ServiceRelease
from tests.unit.local_host import LocalHost

DRIVER = "number 4\nthen driver 580.95.05\nthen kernel 6.1.0-28\nnow driver 580.178.04\nnow kernel 6.1.0-28\n"
SAID = "since release 4 last answered, driver 580.95.05 became 580.178.04"


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of release 1 of chat, which is current and has answered, on a machine with kernel 6.1.0-28."""
    monkeypatch.setattr(layout, "CONFIGURATION", str(tmp_path / "etc"))
    (tmp_path / "bin").mkdir()
    runs(tmp_path, "6.1.0-28")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    folder = tmp_path / "etc/services/chat"
    folder.mkdir(parents=True)
    stage(LocalHost(), ServiceRelease("chat", "[Service]\n", {}), None)
    (folder / "current").symlink_to("releases/1")
    mark_healthy(LocalHost(), "chat", "1")
    return folder / "releases/1"


def runs(tmp_path: Path, kernel: str) -> None:
    (tmp_path / "bin/uname").write_text(f"#!/bin/sh\necho {kernel}\n")
    (tmp_path / "bin/uname").chmod(0o755)


def test_what_has_changed_is_named_until_the_release_has_answered_again(release: Path, tmp_path: Path) -> None:
    host: Any = LocalHost()
    assert changed_since(host, "chat") == ("", "")
    runs(tmp_path, "6.99.0")
    assert changed_since(host, "chat") == (
        "since release 1 last answered, kernel 6.1.0-28 became 6.99.0",
        "boot kernel 6.1.0-28 again",
    )
    note_held(host, "chat")
    assert changed_since(host, "chat") == ("", "")


def test_a_mark_of_an_earlier_rigup_says_nothing_and_none_is_made_where_none_was(release: Path, tmp_path: Path) -> None:
    (release / "answered").write_text("")
    runs(tmp_path, "6.99.0")
    assert changed_since(LocalHost(), "chat") == ("", "")  # type: ignore[arg-type]
    (release / "answered").unlink()
    note_held(LocalHost(), "chat")  # type: ignore[arg-type]
    assert not (release / "answered").exists()


@pytest.mark.parametrize(
    ("said", "text", "hint"),
    [
        (DRIVER + "pinned yes\n", SAID, "go back with rigup lock --upgrade driver=580.95.05, then rigup apply"),
        (DRIVER, SAID, "install driver 580.95.05 again"),
        ("number 4\nthen build 17\nnow build 18\n", "its build was made again", "rigup rollback --service chat"),
        ("number 4\nthen driver 580.95.05\nnow driver ;reboot\n", "", ""),
        ("number 4\nthen driver 580.95.05\n", "", ""),
    ],
    ids=["rigup's driver", "another driver", "a build", "not a version", "no driver"],
)
def test_the_way_back(said: str, text: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "script", lambda *words, **more: said)
    found = changed_since(LocalHost(), "chat")  # type: ignore[arg-type]
    assert (text in found[0], hint in found[1], bool(found[0])) == (True, True, bool(text))


def test_an_answer_that_fails_says_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_ask_once", lambda host, request: Reply(state="failed", why='it said "Der Der"'))
    monkeypatch.setattr(health, "changed_since", lambda host, service: (SAID, "go back"))
    with pytest.raises(HostFailed) as caught:
        health.ask_release(LocalHost(), {}, "chat")  # type: ignore[arg-type]
    assert caught.value.message == f'box: chat: health check failed: it said "Der Der"; {SAID}'
    assert caught.value.hint == "go back"
    assert held.ANSWERED == "answered"
