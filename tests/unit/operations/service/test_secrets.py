"""Secrets: made on the host, in a file for its reader alone, never in a command."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from rigup.operations.primitives import progress
from rigup.operations.primitives.progress import Progress
from rigup.operations.service import secrets
from tests.unit.local_host import LocalHost

GROUP = grp.getgrgid(os.getgid()).gr_name


def test_a_secret_is_made_there_and_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Progress] = []
    monkeypatch.setattr(progress, "_listeners", [shown.append])
    path = tmp_path / "new" / "key"
    host = LocalHost()
    secrets._write(host, str(path), None, "600", GROUP, there=False)
    made = path.read_text().strip()
    assert len(made) >= 40
    assert path.stat().st_mode & 0o777 == 0o600
    assert [(report.secret, made in report.text) for report in shown] == [(made, False)]
    assert not any(made in command for command in host.commands)
    secrets._write(host, str(path), None, "600", GROUP, there=True)
    assert path.read_text().strip() == made
    assert len(shown) == 1


def test_a_given_secret_travels_over_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "key"
    host = LocalHost()
    secrets._write(host, str(path), "sk-given", "640", GROUP, there=False)
    assert path.read_text().strip() == "sk-given"
    assert path.stat().st_mode & 0o777 == 0o640
    assert not any("sk-given" in command for command in host.commands)
