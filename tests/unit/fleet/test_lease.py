"""One apply at a time per host: the scripts of a lease, run in a real shell."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rigup.errors import Refused
from rigup.fleet import lease
from rigup.fleet.lease import EXPIRES_SECONDS, Holder, Lease, myself
from tests.unit.local_host import LocalHost


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lease, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(lease, "FILE", str(tmp_path / "lease.json"))
    return tmp_path / "lease.json"


OTHER = Holder("ada@desk", "2026-01-02 03:04:05 UTC", "another-machine", 4711, "1")


def held_by(holder: Holder, place: Path, age_s: float = 0) -> None:
    place.write_text(json.dumps(vars(holder)))
    os.utime(place, (time.time() - age_s,) * 2)


def test_taken_and_given_back(place: Path) -> None:
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()
    assert not place.exists()


def test_the_second_is_refused_and_told_who_is_first(place: Path) -> None:
    held_by(OTHER, place, age_s=5)
    with pytest.raises(Refused) as caught:
        Lease(LocalHost(), myself()).take()
    said = (
        "box: another rigup apply is at work: ada@desk (process 4711) since 2026-01-02 03:04:05 UTC, last sign of life"
    )
    assert caught.value.message.startswith(said)
    assert caught.value.exit_code == 1
    assert json.loads(place.read_text())["who"] == "ada@desk"


def test_a_lease_that_nobody_renewed_is_dead(place: Path) -> None:
    held_by(OTHER, place, age_s=EXPIRES_SECONDS + 1)
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()


def test_a_process_of_this_machine_that_is_gone_is_dead_at_once(place: Path) -> None:
    held_by(replace(myself(), pid=2**22 + 1), place)
    mine = Lease(LocalHost(), myself())
    mine.take()
    assert json.loads(place.read_text())["pid"] == os.getpid()
    mine.release()


def test_a_reused_process_number_does_not_keep_a_lease_alive(place: Path) -> None:
    held_by(replace(myself(), started="1"), place)
    mine = Lease(LocalHost(), myself())
    mine.take()
    mine.release()
    assert not place.exists()


def test_release_leaves_a_lease_of_somebody_else_alone(place: Path) -> None:
    mine = Lease(LocalHost(), myself())
    mine.take()
    held_by(OTHER, place)
    mine.release()
    assert json.loads(place.read_text())["who"] == "ada@desk"


def test_a_lease_file_that_is_not_one_still_counts(place: Path) -> None:
    place.write_text("{half")
    with pytest.raises(Refused, match="a holder that cannot be read"):
        Lease(LocalHost(), myself()).take()
