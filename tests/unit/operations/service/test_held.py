"""What a host was when a release last answered, noted in the release and compared when it answers no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.errors import HostFailed
from rigup.host import state_of
from rigup.operations.primitives import remote
from rigup.operations.service import health, held
from rigup.operations.service.answer import Answer, Answers
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


def answered(host: Any, tokens_per_second: float, tokens: int = 12) -> None:
    seconds = tokens / tokens_per_second
    found = Answer("box", "chat", "The capital of France is Paris.", tokens, seconds, tokens_per_second)
    state_of(host, Answers).by_service["chat"] = found


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(held, "report", lambda progress: lines.append(progress.text))
    return lines


def test_an_answer_that_is_far_slower_after_a_change_is_worth_a_word(
    release: Path, tmp_path: Path, logged: list[str]
) -> None:
    host: Any = LocalHost()
    answered(host, 115.3)
    note_held(host, "chat")  # an earlier rigup noted no speed
    answered(host, 6.0)
    note_held(host, "chat")  # nothing of the host has changed: the machine may be busy
    assert logged == []
    runs(tmp_path, "6.99.0")
    note_held(host, "chat")
    assert logged == [
        "warning: chat answered at 6.0 tokens/s, and at 115.3 before kernel 6.1.0-28 became 6.99.0 "
        "(measure it: rigup bench chat)"
    ]
    note_held(host, "chat")
    assert len(logged) == 1


@pytest.mark.parametrize(
    ("now", "tokens"), [(60.0, 100), (0.9, 1), (20.0, 6)], ids=["more than half", "one token", "too soon to tell"]
)
def test_nothing_is_said_of_a_speed_that_tells_nothing(
    now: float, tokens: int, release: Path, tmp_path: Path, logged: list[str]
) -> None:
    host: Any = LocalHost()
    answered(host, 115.0)
    mark_healthy(host, "chat", "1")
    assert "speed 115.0" in (release / "answered").read_text()
    runs(tmp_path, "6.99.0")
    answered(host, now, tokens)
    mark_healthy(host, "chat", "1")
    assert logged == []
    assert "kernel 6.99.0" in (release / "answered").read_text()


@pytest.mark.parametrize("speed", ["nan", "inf", "1e9", "-1.0", "$(id)", "99999999999.0", ""])
def test_a_speed_that_a_host_cannot_have_is_not_read(
    speed: str, release: Path, tmp_path: Path, logged: list[str]
) -> None:
    (release / "answered").write_text(f"kernel 6.1.0-28\nspeed {speed}\n")
    runs(tmp_path, "6.99.0")
    host: Any = LocalHost()
    answered(host, 1.0)
    note_held(host, "chat")
    assert logged == []


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
