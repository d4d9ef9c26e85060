"""What a host says of its verified files: nothing vouches where it makes no sense."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given

from rigup.facts.verified_files import VerifiedFiles
from tests.hostile import mangled, read_safely

RECEIPT = {"files": [{"path": "a.bin", "size": 3, "inode": 7, "mtime_ns": 1000000000, "sha256": "ab"}]}
STAT = "3|7|1.0000000000|./a.bin"


def read(receipt: str, stat: str = STAT) -> dict[str, tuple[int, str]]:
    return VerifiedFiles().process([receipt, "##rigup-files##", stat])


def test_a_receipt_vouches_for_what_was_not_touched() -> None:
    assert read(json.dumps(RECEIPT)) == {"a.bin": (3, "ab")}
    assert read(json.dumps(RECEIPT), STAT.replace("|7|", "|8|")) == {}


def test_files_are_known_by_size_inode_and_nanoseconds(tmp_path: Path) -> None:
    names = ("-a.bin", "b/c.bin", "empty", "a folder", "gone")
    (tmp_path / "b").mkdir()
    (tmp_path / "a folder").mkdir()
    entries = []
    for name, content in (("-a.bin", b"abc"), ("b/c.bin", b"12"), ("empty", b"")):
        file = tmp_path / name
        file.write_bytes(content)
        os.utime(file, ns=(0, 1_777_863_721_987_654_321))
        entries.append({"path": name, "size": len(content), "inode": file.stat().st_ino, "sha256": name,
                        "mtime_ns": 1_777_863_721_987_654_321})  # fmt: skip
    (tmp_path / ".rigup-receipt.json").write_text(json.dumps({"files": entries}))
    fact = VerifiedFiles()
    for place in (None, str(tmp_path)):
        asked = ["sh", "-c", fact.command(str(tmp_path), names, place)]
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert fact.process(said.splitlines()) == {
            "-a.bin": (3, "-a.bin"),
            "b/c.bin": (2, "b/c.bin"),
            "empty": (0, "empty"),
        }


@pytest.mark.parametrize(
    ("receipt", "stat"),
    [
        ("[" * 100_000, STAT),
        ('{"files": [[]]}', STAT),
        ('{"files": 1}', STAT),
        (json.dumps(RECEIPT), "three|7|1.0|./a.bin"),
        (json.dumps(RECEIPT), f"{'9' * 5000}|7|1.0|./a.bin"),
    ],
)
def test_what_makes_no_sense_vouches_for_nothing(receipt: str, stat: str) -> None:
    assert read(receipt, stat) == {}


@given(mangled(RECEIPT))
def test_no_receipt_ends_a_run(said: object) -> None:
    read_safely(lambda: read(json.dumps(said)))
