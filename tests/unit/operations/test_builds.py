"""A build's name holds everything that the binary depends on."""

from __future__ import annotations

import pytest

from rigup.operations.builds import name_of
from rigup.plan import Build

BUILD = Build(engine="llama.cpp", version="b1", method="source", sha256="0" * 64, flags=("-DX=1",), targets=("t",))


def test_equal_builds_share_a_name() -> None:
    again = BUILD.model_copy(update={"packages": ("cmake",), "address": "https://elsewhere/x.tar.gz"})
    assert name_of(BUILD, "x86_64", "debian-12") == name_of(again, "x86_64", "debian-12")
    assert name_of(BUILD, "x86_64", "debian-12").startswith("llama.cpp-b1-")


@pytest.mark.parametrize(
    ("changed", "architecture", "os_release"),
    [
        ({"version": "b2"}, "x86_64", "debian-12"),
        ({"sha256": "1" * 64}, "x86_64", "debian-12"),
        ({"flags": ("-DX=2",)}, "x86_64", "debian-12"),
        ({"targets": ("t", "u")}, "x86_64", "debian-12"),
        ({}, "aarch64", "debian-12"),
        ({}, "x86_64", "debian-13"),
    ],
)
def test_whatever_the_binary_depends_on_changes_the_name(
    changed: dict[str, object], architecture: str, os_release: str
) -> None:
    other = name_of(BUILD.model_copy(update=changed), architecture, os_release)
    assert other != name_of(BUILD, "x86_64", "debian-12")
