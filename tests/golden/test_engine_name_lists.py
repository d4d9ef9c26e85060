"""How a newer engine version is added to the lists of names."""

from __future__ import annotations

import pytest

from tests.golden.engine_name_lists import extended, with_version

LISTS = {
    "versions": ["0.1.0", "0.2.0"],
    "packages": {},
    "options": {"--gone": "0.1.0", "--new": "0.2.0", "--old": "0.1.0..0.2.0"},
    "variables": {"A": "0.1.0..0.2.0"},
    "values": {"--old": {"x": "0.1.0", "y": "0.2.0"}},
}


def test_ranges_grow_end_and_begin_again() -> None:
    ranges = {"a": "0.1.0..0.2.0", "b": "0.2.0", "c": "0.1.0", "d": "0.1.0..0.2.0"}
    assert extended(ranges, {"a", "b", "c", "e"}, "0.2.0", "0.3.0") == {
        "a": "0.1.0..0.3.0",
        "b": "0.2.0..0.3.0",
        "c": "0.1.0 0.3.0",
        "d": "0.1.0..0.2.0",
        "e": "0.3.0",
    }


def test_a_version_is_added_and_nothing_else_changes() -> None:
    new = with_version(LISTS, "0.3.0", {"--old", "--newest"}, {"A"})
    assert new["versions"] == ["0.1.0", "0.2.0", "0.3.0"]
    assert new["options"] == {
        "--gone": "0.1.0",
        "--new": "0.2.0",
        "--newest": "0.3.0",
        "--old": "0.1.0..0.3.0",
    }
    assert new["variables"] == {"A": "0.1.0..0.3.0"}
    assert new["values"] == {"--old": {"x": "0.1.0", "y": "0.2.0..0.3.0"}}
    assert LISTS["versions"] == ["0.1.0", "0.2.0"]


@pytest.mark.parametrize("version", ["0.2.0", "0.1.5"])
def test_only_a_newer_version_can_be_added(version: str) -> None:
    with pytest.raises(ValueError, match=f"{version} is not newer than 0.2.0"):
        with_version(LISTS, version, set(), set())
