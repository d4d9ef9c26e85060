"""Where the toolkit's roles are: the top of a checkout, or the folder that a wheel brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rigup import toolkit

ROOT = Path(__file__).parents[2]


def test_a_checkout_is_its_own_toolkit() -> None:
    assert toolkit.toolkit_root() == ROOT
    said = subprocess.run([sys.executable, "-m", "rigup.toolkit"], capture_output=True, text=True, check=True)
    assert said.stdout == f"{ROOT}\n"


def test_what_a_wheel_ships_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_SHIPPED", tmp_path)
    assert toolkit.toolkit_root() == tmp_path


def test_roles_of_the_fleets_own_are_found_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["fleet"])
    toolkit.find_roles()
    toolkit.find_roles()
    assert sys.path == ["fleet", str(ROOT)]
