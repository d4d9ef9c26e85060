"""Which wheels a host has, asked in a real shell."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rigup.errors import HostFailed
from rigup.operations.builds import wheels
from rigup.settings import PackageSource
from tests.unit.local_host import LocalHost
from tests.unit.sources.stand_in_index import index_of_pip

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


def test_one_wheel_comes_from_the_wheelhouse_and_not_if_it_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(wheels, "STORE", str(tmp_path / "store"))
    monkeypatch.setattr(wheels.remote, "make_folders", lambda host, *paths: None)
    monkeypatch.setattr(wheels, "_send_one", lambda host, name, path, sha256: sent.append(str(path)))
    house = tmp_path / "house/wheels"
    house.mkdir(parents=True)
    (house / "a.whl").write_text("a")
    source = PackageSource(wheelhouse=tmp_path / "house")
    assert wheels.have_wheel(LocalHost(), "a.whl", HASHES["a.whl"], source) == f"{tmp_path}/store/a.whl"
    assert sent == [f"{house}/a.whl"]
    (house / "a.whl").write_text("another")
    with pytest.raises(HostFailed) as refused:
        wheels.have_wheel(LocalHost(), "a.whl", HASHES["a.whl"], source)
    assert refused.value.hint.endswith("nothing was sent") and len(sent) == 1


def test_one_wheel_without_a_wheelhouse_comes_from_pips_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with index_of_pip(monkeypatch, tmp_path / "cache") as index:
        sha256 = index.hold("some_library-1-py3-none-any.whl")
        found = wheels.wheel_here("some_library-1-py3-none-any.whl", sha256, PackageSource(), "box")
        assert hashlib.sha256(found.read_bytes()).hexdigest() == sha256
        with pytest.raises(HostFailed, match="sha256"):
            wheels.wheel_here("some_library-1-py3-none-any.whl", "0" * 64, PackageSource(), "box")
