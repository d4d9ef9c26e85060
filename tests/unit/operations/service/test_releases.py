"""A release is switched to and asked; what had to be put back is asked as it was made. systemd is stood in for."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.errors import HostFailed, HostLost
from rigup.host import state_of
from rigup.operations.driver import reboots
from rigup.operations.service import releases
from rigup.operations.service.releases import mark_healthy, stage
from rigup.systemd.release import ServiceRelease
from tests.unit.local_host import LocalHost

BACK = "; rolled back to release 1, which answers"
UNIT = "[Service]\nLoadCredential=api-key:/x\n"


class Box(LocalHost):
    """A host whose switches are noted; what is said of a unit's state is up to `runs`."""

    def __init__(self) -> None:
        super().__init__()
        self.switched: list[str] = []


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    """One that has release 1 of chat, which has answered, and a `systemctl` that says yes to everything."""
    monkeypatch.setattr(layout, "CONFIGURATION", str(tmp_path / "etc"))
    monkeypatch.setattr(releases, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(releases, "LOADED", str(tmp_path / "loaded"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    box = Box()
    monkeypatch.setattr(releases, "switch", lambda host, service, number: host.switched.append(number))
    (tmp_path / "bin/journalctl").write_text(f"#!/bin/sh\ncat {tmp_path}/journal 2>/dev/null\n")
    (tmp_path / "bin/journalctl").chmod(0o755)
    (tmp_path / "etc/services/chat").mkdir(parents=True)
    number, _ = stage(box, ServiceRelease("chat", UNIT, {"command": ["llama-server", "--port", "8000"]}), None)
    (tmp_path / "etc/services/chat/current").symlink_to(f"releases/{number}")
    mark_healthy(box, "chat", number)
    (tmp_path / "units").mkdir()
    (tmp_path / "units/rigup-chat.service").write_text(UNIT)
    return box


def no_answer(host: Any) -> None:
    raise HostFailed("box: chat does not answer")


def never(host: Any, manifest: Mapping[str, Any]) -> None:
    raise AssertionError("nothing was put back")


def test_the_release_that_was_put_back_is_asked_as_it_was_made(box: Box) -> None:
    asked: list[Mapping[str, Any]] = []
    wanted = ServiceRelease("chat", UNIT, {"command": ["llama-server", "--port", "8001"]})
    with pytest.raises(HostFailed) as caught:
        releases._activate(box, wanted, no_answer, lambda host, manifest: asked.append(manifest), None, False)
    assert caught.value.message == f"box: chat does not answer{BACK}"
    assert (box.switched, asked) == (["2", "1"], [{"command": ["llama-server", "--port", "8000"]}])


@pytest.mark.parametrize("error", [HostLost("box: the host is gone"), ConnectionResetError()])
def test_nothing_is_put_back_on_a_host_that_is_gone(
    box: Box, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(host: Any) -> None:
        raise error

    monkeypatch.setattr(releases.remote, "reconnect", lambda host: False)
    wanted = ServiceRelease("chat", UNIT, {"command": ["llama-server", "--port", "8001"]})
    with pytest.raises(HostLost, match="whether release 2 answers is unknown") as caught:
        releases._activate(box, wanted, gone, never, None, False)
    assert box.switched == ["2"] and "is on" in (caught.value.hint or "")


def test_a_release_that_does_not_start_says_why(box: Box, tmp_path: Path) -> None:
    usage = "usage:\n--chat-template-file JINJA_TEMPLATE_FILE\n\nto show complete usage, run with -h\n"
    said = "error while handling argument \"--chat-template-file\": error: failed to open file '/x.jinja'"
    (tmp_path / "journal").write_text(f"{said}\n\n{usage}" * 3)
    manifest = {"build": "llama.cpp-b11434-3f2a", "command": ["llama-server", "--port", "8001"]}
    (tmp_path / "etc/services/chat/current/release.json").write_text(json.dumps(manifest))
    with pytest.raises(HostFailed) as caught:
        releases._activate(
            box, ServiceRelease("chat", UNIT, manifest), no_answer, lambda host, manifest: None, None, False
        )
    assert caught.value.message == f"box: chat does not answer: {said}{BACK}"


@pytest.mark.parametrize(("loaded", "switched"), [("new", []), ("old", ["1"]), (None, ["1"])])
def test_what_a_reboot_has_started_is_started_again_only_where_its_key_is_an_old_one(
    box: Box, tmp_path: Path, loaded: str | None, switched: list[str]
) -> None:
    state_of(box, reboots._Reboots).done = True
    (tmp_path / "etc/services/chat/api-key").write_text("new\n")
    if loaded:
        (tmp_path / "loaded/rigup-chat.service").mkdir(parents=True)
        (tmp_path / "loaded/rigup-chat.service/api-key").write_text(f"{loaded}\n")
    wanted = ServiceRelease("chat", UNIT, {"command": ["llama-server", "--port", "8000"]})
    releases._activate(box, wanted, lambda host: None, never, "1", True)
    assert box.switched == switched


def test_what_a_reboot_has_started_without_a_key_is_not_started_again(box: Box, tmp_path: Path) -> None:
    state_of(box, reboots._Reboots).done = True
    (tmp_path / "units/rigup-chat.service").write_text("[Service]\n")
    releases._activate(box, ServiceRelease("chat", "[Service]\n", {}), lambda host: None, never, "1", True)
    assert box.switched == []


def test_what_a_release_consists_of_can_be_changed_by_root_alone_whatever_the_umask(box: Box, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        number, _ = stage(box, ServiceRelease("other", UNIT, {}), None)
    finally:
        os.umask(before)
    folder = tmp_path / "etc/services/other"
    found = [folder, *folder.rglob("*")]
    assert folder / f"releases/{number}/unit" in found
    assert {path.name: f"{path.stat().st_mode & 0o022:o}" for path in found} == {path.name: "0" for path in found}


@pytest.mark.parametrize(
    ("active", "loaded", "stale"),
    [(True, "old", True), (True, "new", False), (True, None, True), (False, None, False)],
    ids=["another key", "its key", "no key", "stopped"],
)
def test_only_a_service_that_runs_can_run_with_another_key(
    active: bool, loaded: str | None, stale: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = "rigup-chat.service"
    (tmp_path / unit).write_text("[Service]\nLoadCredential=api-key:/somewhere\n")
    (tmp_path / "api-key").write_text("new")
    (tmp_path / "loaded" / unit).mkdir(parents=True)
    if loaded:
        (tmp_path / "loaded" / unit / "api-key").write_text(loaded)
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\nexit {0 if active else 3}\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(releases, "UNITS", str(tmp_path))
    monkeypatch.setattr(releases, "LOADED", str(tmp_path / "loaded"))
    monkeypatch.setattr(layout, "service_folder", lambda service: str(tmp_path))
    assert (subprocess.run(["sh", "-c", releases._stale("chat")]).returncode == 0) == stale


COMMAND = {"command": ["llama-server", "--port", "8000"]}


@pytest.mark.parametrize(
    ("kept", "unit", "same", "expects_other"),
    [
        ({**COMMAND, "expected_answer": "Paris"}, UNIT, True, False),
        ({**COMMAND, "expected_answer": "Rome"}, UNIT, True, True),
        (COMMAND, UNIT, True, False),
        ({**COMMAND, "expected_answer": "Paris"}, "[Service]\n", False, False),
        ({"command": ["llama-server"], "expected_answer": "Paris"}, UNIT, False, False),
    ],
    ids=["the same", "another answer", "of an earlier rigup", "another unit", "another command"],
)
def test_what_a_release_expects_makes_no_other_release_of_it(
    kept: dict[str, Any], unit: str, same: bool, expects_other: bool
) -> None:
    wanted = ServiceRelease("chat", UNIT, {**COMMAND, "expected_answer": "Paris"})
    running = releases.Running("1", unit.rstrip("\n"), json.dumps(kept))
    assert releases._compared(running, wanted) == (same, expects_other)


def test_what_a_release_expects_is_written_into_it_once_it_has_answered_so(box: Box, tmp_path: Path) -> None:
    file = tmp_path / "etc/services/chat/releases/1/release.json"
    wanted = ServiceRelease("chat", UNIT, {**COMMAND, "expected_answer": "Rome"})
    with pytest.raises(HostFailed):
        releases._expect(box, wanted, no_answer, "1")
    assert json.loads(file.read_text()) == COMMAND
    os.utime(file, (1_700_000_000, 1_700_000_000))
    releases._expect(box, wanted, lambda host: None, "1")
    assert (json.loads(file.read_text()), box.switched) == ({**COMMAND, "expected_answer": "Rome"}, [])
    assert file.stat().st_mtime == 1_700_000_000


def test_a_release_that_has_answered_before_stays_where_it_answers_no_longer(box: Box, tmp_path: Path) -> None:
    def wrong(host: Any) -> None:
        raise HostFailed("box: chat says Der Der", "go back")

    stage(box, ServiceRelease("chat", "[Service]\n", {}), None)
    with pytest.raises(HostFailed) as caught:
        releases._activate(box, ServiceRelease("chat", UNIT, COMMAND), wrong, never, "1", False, held=True)
    assert caught.value.message == "box: chat says Der Der; release 1 stays, which has answered before"
    assert (caught.value.hint, box.switched) == ("go back", ["1"])
    assert (tmp_path / "etc/services/chat/releases/1/answered").exists()
