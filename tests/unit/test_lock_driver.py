"""The lock's tables for the driver and the CUDA toolkit."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.errors import InputError
from rigup.lock import Lock, LockedDriver, load_lock
from rigup.project.inventory import toolkit_root


def lock(tmp_path: Path, text: str) -> Lock:
    (tmp_path / "rigup.lock").write_text(f"schema = 1\n{text}")
    return load_lock(tmp_path / "rigup.lock")


def test_a_lock_without_them_leaves_driver_and_toolkit_alone(tmp_path: Path) -> None:
    found = lock(tmp_path, "")
    assert (found.driver, found.cuda_toolkit) == (None, None)


def test_the_toolkits_own_lock_pins_both() -> None:
    found = load_lock(toolkit_root() / "rigup.lock")
    assert found.driver == LockedDriver(version="580.178.04", branch="580")
    assert found.cuda_toolkit is not None
    assert found.cuda_toolkit.packages["cuda-toolkit-13-0"] == found.cuda_toolkit.version


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[driver]\nversion = "590.48.01"\nbranch = "580"',
            "2: driver: version 590.48.01 is not of branch 580",
        ),
        ('[driver]\nversion = "580"\nbranch = "580"', "3: driver.version: "),
        ('[driver]\nversion = "580.1; rm"\nbranch = "580"', "3: driver.version: "),
        ('[driver]\nbranch = "580"', "2: driver.version: "),
        ('[cuda_toolkit]\nversion = "13"\npackages = {}', "3: cuda_toolkit.version: "),
        ('[cuda_toolkit]\nversion = "13.0.2"\npackages = { a = "1 b" }', "4: cuda_toolkit.packages.a: "),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        lock(tmp_path, text)
    assert caught.value.message.startswith(f"{tmp_path}/rigup.lock:{words}")
