"""The lab's package repositories are kept by the content of their sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rigup.lab.packages import nvidia_repository


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that the packages are made of, which may be changed."""
    copy = tmp_path / "nvml"
    shutil.copytree(nvidia_repository.NVML, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(nvidia_repository, "NVML", copy)
    return copy


def test_changed_sources_are_other_packages(sources: Path) -> None:
    before = nvidia_repository._content()
    with (sources / "nvcc").open("a") as changed:
        changed.write("# one more line\n")
    assert nvidia_repository._content() != before


def test_compiled_python_beside_the_sources_changes_nothing(sources: Path) -> None:
    before = nvidia_repository._content()
    (sources / "__pycache__").mkdir()
    (sources / "__pycache__/cuda_rules.cpython-311.pyc").write_bytes(b"compiled")
    assert nvidia_repository._content() == before
