"""What a lock is begun with: known versions, each with a source, the same as the toolkit's own lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.catalogue.driver_versions import locked_driver, nvidia_versions
from rigup.lock import load_lock

VERSIONS = nvidia_versions()
CHECKED_IN = load_lock(Path(__file__).parents[3] / "rigup.lock")


def test_the_defaults_are_what_the_toolkits_own_lock_has() -> None:
    assert locked_driver(VERSIONS.driver_version() or "") == CHECKED_IN.driver
    assert VERSIONS.cuda_toolkit() == CHECKED_IN.cuda_toolkit


@pytest.mark.parametrize(
    ("wanted", "version"), [("580", "580.178.04"), ("590", "590.48.01"), ("580.95.05", "580.95.05"), ("1", None)]
)
def test_a_branch_is_its_newest_known_version_and_a_version_is_itself(wanted: str, version: str | None) -> None:
    assert VERSIONS.driver_version(wanted) == version


def test_an_unknown_toolkit_is_none() -> None:
    assert VERSIONS.cuda_toolkit("99.0.0") is None


def test_versions_ascend_and_have_sources() -> None:
    numbers = [tuple(int(part) for part in version.split(".")) for version in VERSIONS.driver.versions]
    assert numbers == sorted(numbers)
    assert VERSIONS.driver.default in VERSIONS.driver.versions
    assert VERSIONS.driver.source and all(toolkit.source for toolkit in VERSIONS.cuda_toolkits)
