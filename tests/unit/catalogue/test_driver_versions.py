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
    ("wanted", "version"),
    [
        ("580", "580.178.04"),
        ("590", "590.48.01"),
        ("595", "595.91.07"),
        ("610", "610.57.04"),
        ("580.95.05", "580.95.05"),
        ("1", None),
    ],
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
    branches = [known.branch for known in VERSIONS.branches]
    assert branches == sorted(branches) and all(known.source for known in VERSIONS.branches)


def test_every_version_is_of_a_known_branch() -> None:
    assert all(VERSIONS.branch(int(version.partition(".")[0])) for version in VERSIONS.driver.versions)


@pytest.mark.parametrize("series", ["13.0", "13.1", "13.2", "13.3", "13.4"])
def test_every_release_of_cuda_13_can_be_locked_with_its_packages(series: str) -> None:
    found = VERSIONS.cuda_toolkit(series)
    assert found is not None and found.version.startswith(f"{series}.")
    packages = {
        f"{name}-{series.replace('.', '-')}" for name in ("cuda-cudart", "cuda-nvcc", "cuda-toolkit", "libcublas")
    }
    assert found.packages.keys() == packages
    assert found.packages[f"cuda-toolkit-{series.replace('.', '-')}"] == found.version


def test_a_series_of_the_toolkit_is_its_newest_known_release() -> None:
    found = VERSIONS.cuda_toolkit("13.3")
    assert found is not None and found.version == "13.3.1"
    assert VERSIONS.cuda_toolkit("13") is not None and VERSIONS.cuda_toolkit("3.1") is None


@pytest.mark.parametrize(("branch", "support"), [
    (580, "long-term support, supported until June 2028"),
    (590, "new feature, no longer supported"),
    (595, "production, supported until March 2027"),
])  # fmt: skip
def test_the_support_of_a_branch_in_words(branch: int, support: str) -> None:
    known = VERSIONS.branch(branch)
    assert known is not None and known.support == support
