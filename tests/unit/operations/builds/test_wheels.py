"""Which wheels a host has, asked in a real shell."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rigup.operations.builds import wheels
from tests.unit.local_host import LocalHost

HASHES = {"a.whl": hashlib.sha256(b"a").hexdigest(), "b.whl": hashlib.sha256(b"b").hexdigest()}


def test_a_wheel_counts_where_the_store_has_it_with_the_right_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "STORE", str(tmp_path))
    (tmp_path / "a.whl").write_text("a")
    (tmp_path / "b.whl").write_text("other")
    assert wheels._missing(LocalHost(), HASHES) == ["b.whl"]


def test_what_lies_in_the_working_folder_is_not_the_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "STORE", str(tmp_path / "missing"))
    (tmp_path / "a.whl").write_text("a")
    monkeypatch.chdir(tmp_path)
    assert wheels._missing(LocalHost(), HASHES) == ["a.whl", "b.whl"]
