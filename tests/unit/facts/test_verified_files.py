"""What a host says of its verified files: nothing vouches where it makes no sense."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from rigup.facts.verified_files import VerifiedFiles
from tests.hostile import mangled, read_safely

RECEIPT = {"files": [{"path": "a.bin", "size": 3, "inode": 7, "mtime_ns": 1000000000, "sha256": "ab"}]}
STAT = "regular file|3|7|1.000000000|a.bin"


def read(receipt: str, stat: str = STAT) -> dict[str, tuple[int, str]]:
    return VerifiedFiles().process([receipt, "##rigup-files##", stat])


def test_a_receipt_vouches_for_what_was_not_touched() -> None:
    assert read(json.dumps(RECEIPT)) == {"a.bin": (3, "ab")}
    assert read(json.dumps(RECEIPT), STAT.replace("|7|", "|8|")) == {}


@pytest.mark.parametrize(
    ("receipt", "stat"),
    [
        ("[" * 100_000, STAT),
        ('{"files": [[]]}', STAT),
        ('{"files": 1}', STAT),
        (json.dumps(RECEIPT), "regular file|three|7|1.0|a.bin"),
        (json.dumps(RECEIPT), f"regular file|{'9' * 5000}|7|1.0|a.bin"),
    ],
)
def test_what_makes_no_sense_vouches_for_nothing(receipt: str, stat: str) -> None:
    assert read(receipt, stat) == {}


@given(mangled(RECEIPT))
def test_no_receipt_ends_a_run(said: object) -> None:
    read_safely(lambda: read(json.dumps(said)))
