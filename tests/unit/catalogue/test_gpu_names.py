"""Which GPU a name means."""

from __future__ import annotations

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.gpu_names import matching, nearest

GPUS = load_catalogue().gpus


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("rtx 3090", "NVIDIA GeForce RTX 3090"),
        ("3090", "NVIDIA GeForce RTX 3090"),
        ("b200", "NVIDIA B200"),
        ("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("rtx-pro-6000-max-q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
        ("RTX PRO 6000 Max-Q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
    ],
)
def test_one_gpu_is_meant(name: str, means: str) -> None:
    assert [gpu.name for gpu in matching(name, GPUS)] == [means]


@pytest.mark.parametrize(("name", "count"), [("RTX PRO 6000", 3), ("H100", 2), ("A100", 4), ("A100 80GB", 2)])
def test_a_short_name_may_mean_several(name: str, count: int) -> None:
    assert len(matching(name, GPUS)) == count


@pytest.mark.parametrize("name", ["RTX 3900", "Radeon", "", "NVIDIA", "RTX 309"])
def test_an_unknown_name_means_none(name: str) -> None:
    assert matching(name, GPUS) == ()


@pytest.mark.parametrize(
    ("name", "near"),
    [("RTX 3900", "RTX 3090"), ("RTX 309", "RTX 3090"), ("RTX 30900", "RTX 3090")]
    + [(name, None) for name in ("RTX 3060", "RTX 4", "A10", "H10", "Voodoo")],
)
def test_the_nearest_name_is_suggested(name: str, near: str | None) -> None:
    assert nearest(name, GPUS) == near
