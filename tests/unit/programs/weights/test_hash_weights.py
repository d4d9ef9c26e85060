"""The program that hashes weights which lie on the host already: once, and not what is not as locked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rigup.programs.weights import hash_weights, weights_folder
from rigup.programs.weights.weights_folder import check, load_job

CONTENT = {"a.safetensors": b"a" * 3000, "config.json": b"{}"}


def job_in(folder: Path, place: str | None = None) -> Path:
    """A job for CONTENT, whose files lie in `place`, or in the folder itself."""
    there = Path(place) if place else folder
    for each in (folder, there):
        each.mkdir(exist_ok=True)
    for name, content in CONTENT.items():
        (there / name).write_bytes(content)
    files = [{"path": n, "size": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in CONTENT.items()]
    path = folder.parent / "job.json"
    path.write_text(json.dumps({"folder": str(folder), "place": place or "/models", "files": files}))
    return path


def test_a_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, hashed = job_in(tmp_path / "own"), []
    real = weights_folder.hash_file

    def counting(path: Path, *rest: Any) -> str:
        hashed.append(path.name)
        return real(path, *rest)

    monkeypatch.setattr(weights_folder, "hash_file", counting)
    assert [hash_weights.main([str(job)]) for _ in range(2)] == [0, 0]
    assert hashed == ["a.safetensors", "config.json"]
    (tmp_path / "own/config.json").touch()
    assert hash_weights.main([str(job)]) == 0
    assert hashed[2:] == ["config.json"]


def test_the_receipt_is_held_against_the_files_where_they_lie(tmp_path: Path) -> None:
    """As on a host, where a job has seen them in the folder, by a hard link here."""
    folder, place = tmp_path / "own", tmp_path / "models"
    job = job_in(folder, str(place))
    for name in CONTENT:
        (folder / name).hardlink_to(place / name)
    assert hash_weights.main([str(job)]) == 0
    for name in CONTENT:
        (folder / name).unlink()
    assert check(load_job(job), deep=True)["complete"] and check(load_job(job), deep=False)["complete"]
    (place / "a.safetensors").write_bytes(b"b" * 3000)
    assert check(load_job(job), deep=False) == {"complete": False, "missing": [], "bad": ["a.safetensors"]}
    (place / "config.json").unlink()
    assert check(load_job(job), deep=True) == {"complete": False, "missing": ["config.json"], "bad": ["a.safetensors"]}


def test_a_file_that_changes_while_it_is_hashed_gets_no_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, real = job_in(tmp_path / "own"), weights_folder.hash_file

    def late(path: Path, *rest: Any) -> str:
        found = real(path, *rest)
        path.write_bytes(b"b" * path.stat().st_size)  # its owner still writes
        return found

    monkeypatch.setattr(weights_folder, "hash_file", late)
    assert hash_weights.main([str(job)]) == weights_folder.EXIT_FAILED
    assert capsys.readouterr().err == "error: /models/a.safetensors: changed while it was hashed\n"
    assert not (tmp_path / "own" / weights_folder.RECEIPT).exists()


def test_a_file_of_another_size_is_not_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may have made it endless."""
    folder = tmp_path / "own"
    job, hashed, real = job_in(folder, str(folder)), [], weights_folder.hash_file

    def noted(path: Path, *rest: Any) -> str:
        hashed.append(path.name)
        return real(path, *rest)

    with (folder / "a.safetensors").open("ab") as file:
        file.truncate(2**43)
    monkeypatch.setattr(weights_folder, "hash_file", noted)
    assert check(load_job(job), deep=True) == {"complete": False, "missing": [], "bad": ["a.safetensors"]}
    assert hashed == ["config.json"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.unlink(), "error: /models/config.json: does not exist, or is not a regular file"),
        (lambda path: path.write_bytes(b"{ }"), "error: /models/config.json: 3 bytes, but 2 are locked"),
        (lambda path: path.write_bytes(b"[]"), "error: /models/config.json: sha256 is "),
    ],
)
def test_what_is_not_as_locked_gets_no_receipt(
    damage: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = job_in(tmp_path / "own")
    damage(tmp_path / "own/config.json")
    assert hash_weights.main([str(job)]) != 0
    assert capsys.readouterr().err.startswith(says)
    receipt = json.loads((tmp_path / "own" / weights_folder.RECEIPT).read_text())
    assert [entry["path"] for entry in receipt["files"]] == ["a.safetensors"]
