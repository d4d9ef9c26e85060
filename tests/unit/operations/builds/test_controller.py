"""The controlling machine as a builder: a real compile of the lab's stand-in engine, as this user."""

from __future__ import annotations

import hashlib
import json
import tarfile
from functools import partial
from pathlib import Path

import pytest

from rigup.errors import HostFailed
from rigup.operations.builds import controller
from rigup.operations.builds.records import BuildRecord
from rigup.operations.builds.source import compile_job
from rigup.operations.primitives import jobs
from rigup.plan import Build
from rigup.settings import CONTROLLER, Builder
from tests.lab.fleet_fixtures import engine_archive

NAME = "llama.cpp-b7-0123456789ab"
CHECK = (("bin/llama-server", "--version"), "7")

LACKING = controller.lacking(Build(engine="llama.cpp", version="b7", method="source"))

needs_a_compiler = pytest.mark.skipif(bool(LACKING), reason=f"this machine lacks {LACKING}")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The source of the stand-in engine."""
    path = tmp_path / "source"
    path.write_bytes(engine_archive())
    return path


def build_of(archive: Path) -> Build:
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    flags, targets = ("-DLLAMA_BUILD_NUMBER=7",), ("llama-server",)
    return Build(
        engine="llama.cpp", version="b7", method="source", sha256=sha256, root="engine", flags=flags, targets=targets
    )


def compiled(builder: Builder, build: Build, archive: Path) -> BuildRecord:
    job = partial(compile_job, build, NAME, str(archive), "", CHECK, CONTROLLER)
    return controller.compiled(builder, NAME, job, lambda *_: None)


@needs_a_compiler
def test_what_is_compiled_here_is_recorded_and_compiled_once(archive: Path, tmp_path: Path) -> None:
    builder, build = Builder(CONTROLLER, tmp_path / "records"), build_of(archive)
    record = compiled(builder, build, archive)
    archive.unlink()
    assert compiled(builder, build, archive) == record
    assert set(record.files) == {"bin/llama-server", "manifest.json"}
    with tarfile.open(builder.archive(NAME)) as packed:
        said = json.loads(packed.extractfile(f"{NAME}/manifest.json").read())  # type: ignore[union-attr]
    assert (said["built_by"], said["version_output"]) == ("controller", "version: 7 (stand-in)")
    assert sorted(path.name for path in builder.folder.iterdir()) == [f"{NAME}.json", f"{NAME}.tar.gz"]


@needs_a_compiler
def test_one_that_does_not_compile_is_told_in_the_last_words(archive: Path, tmp_path: Path) -> None:
    builder = Builder(CONTROLLER, tmp_path / "records")
    wrong = build_of(archive).model_copy(update={"targets": ("no-such-target",)})
    with pytest.raises(HostFailed, match=r"^controller: engine: cmake --build: exit status 1: "):
        compiled(builder, wrong, archive)
    assert list(builder.folder.iterdir()) == []


def test_a_user_who_stops_ends_it(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_cancelled", True)
    builder = Builder(CONTROLLER, tmp_path / "records")
    with pytest.raises(jobs.Cancelled):
        compiled(builder, build_of(archive), archive)
    assert list(builder.folder.iterdir()) == []


def test_tools_and_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    monkeypatch.setattr(controller.shutil, "which", lambda tool: None if tool == "ninja" else f"/usr/bin/{tool}")
    assert controller.lacking(build_of(archive)) == "ninja"
    monkeypatch.setattr(controller.shutil, "which", lambda tool: f"/usr/bin/{tool}")
    pinned = build_of(archive).model_copy(update={"pinned_packages": {"no-such-package": "13.0.2"}})
    assert controller.lacking(pinned) == "no-such-package 13.0.2"
