"""The ids of lab machines on the machine that runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rigup.lab import ids
from rigup.lab.folder import LabRecord
from rigup.lab.network.addresses import MOST_LABS, MOST_MACHINES


def record(number: int) -> LabRecord:
    first = ids.first_id(number)
    return LabRecord(
        name="b", number=number, network=1, first_id=first, suite="bookworm", base="x", disk="4g", hosts=MOST_MACHINES
    )


def test_the_machines_of_many_labs_have_ranges_of_their_own() -> None:
    firsts = [ids.root_of(record(number), index) for number in range(1, 144) for index in range(1, MOST_MACHINES + 1)]
    assert len(set(firsts)) == 143 * MOST_MACHINES
    assert all(first % ids.COUNT == 0 for first in firsts)


def test_no_range_leaves_those_of_containers() -> None:
    for number in range(1, MOST_LABS + 1):
        found = record(number)
        assert ids.root_of(found, 1) >= ids.FIRST
        assert ids.root_of(found, MOST_MACHINES) + ids.COUNT <= ids.END


def test_what_is_handed_over_keeps_its_owners_and_modes(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    program, link = tmp_path / "bin" / "sudo", tmp_path / "link"
    program.parent.mkdir()
    program.touch()
    link.symlink_to("/etc/passwd")
    os.chown(program, 1000, 7)
    program.chmod(0o4755)
    before = Path("/etc/passwd").stat()

    ids.hand_over(tmp_path, 524288)

    kept = program.stat()
    assert (kept.st_uid, kept.st_gid, kept.st_mode & 0o7777) == (525288, 524295, 0o4755)
    assert {path.lstat().st_uid for path in (tmp_path, program.parent, link)} == {524288}
    assert Path("/etc/passwd").stat() == before
