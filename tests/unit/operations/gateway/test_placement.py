"""What a change of a gateway that failed twice says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rigup.errors import HostFailed
from rigup.gateway.files import GatewayFiles
from rigup.operations.gateway import placement
from tests.unit.local_host import LocalHost

FOLDERS = ("FOLDER", "CANDIDATE", "PREVIOUS")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that a gateway can leave, which is where the module looks; systemctl does nothing."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "backend-keys.map").touch()
        monkeypatch.setattr(placement, name, str(tmp_path / name))
    (tmp_path / "unit").touch()
    monkeypatch.setattr(placement, "UNIT_FILE", str(tmp_path / "unit"))
    command(tmp_path, "systemctl", "exit 0", monkeypatch)
    return tmp_path


def command(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    (commands / name).write_text(f"#!/bin/sh\n{text}\n")
    (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")


def test_a_change_and_a_way_back_that_fail_are_both_told(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(installed, "systemctl", "echo no such unit >&2; exit 1", monkeypatch)
    (installed / "unit").write_text("[Service]\n")
    for step in ("_check", "_write"):
        monkeypatch.setattr(placement, step, Mock())
    monkeypatch.setattr(placement, "_take_over", Mock(side_effect=HostFailed("gw: does not start", "see the journal")))
    monkeypatch.setattr("rigup.operations.primitives.remote.write_file", Mock())
    host: Any = LocalHost()
    with pytest.raises(HostFailed) as caught:
        placement._place(host, GatewayFiles("", "", "", {}), ())
    told = "gw: does not start; restoring the earlier gateway also failed: "
    assert caught.value.message.startswith(told)
    assert caught.value.message.endswith("no such unit")
    assert caught.value.hint == "see the journal"
