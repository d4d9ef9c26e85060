"""Figures about processes: the one that says most of the release, the ranks and the model counts."""

from __future__ import annotations

import pytest

from rigup.catalogue.runtimes import runtimes
from rigup.units import GIB, MIB

FULL, LATENT = frozenset({"full"}), frozenset({"latent"})


@pytest.mark.parametrize(
    ("version", "kinds", "experts", "ranks", "mib"),
    [
        ("0.11.0", FULL, True, 1, 140),
        ("0.16.0", LATENT, True, 8, 2530),
        ("0.16.0", LATENT, True, 4, 750),
        ("0.33.0", FULL, False, 1, 140),
        ("0.33.0", FULL, True, 1, 680),
        ("0.33.0", FULL, True, 8, 3160),
        ("0.33.0", LATENT, True, 16, 4160),
        ("0.33.0", FULL, True, 3, 2250),
    ],
)
def test_what_a_process_of_vllm_takes(version: str, kinds: frozenset[str], experts: bool, ranks: int, mib: int) -> None:
    assert runtimes()["vllm"].process_bytes(version, kinds, experts, ranks) == mib * MIB


@pytest.mark.parametrize(
    ("version", "sequences", "mib"), [("0.19.1", 1024, 0), ("0.20.2", 1024, 1840), ("0.33.0", 64, 230)]
)
def test_graphs_are_counted_since_vllm_estimates_them(version: str, sequences: int, mib: int) -> None:
    assert runtimes()["vllm"].graph_bytes(version, FULL, True, 4, sequences) == mib * MIB


def test_the_samplers_profile_became_smaller() -> None:
    figures = runtimes()["vllm"]
    assert [figures.sampler_bytes(version) for version in ("0.11.0", "0.16.0", "0.17.0", "0.33.0")] == [
        39,
        39,
        16.5,
        16.5,
    ]


@pytest.mark.parametrize(
    ("memory_mib", "seen_gib"), [(24_576, 23.58), (32_607, 31.4), (143_771, 139.8), (183_359, 178.35)]
)
def test_the_reserve_is_what_cuda_does_not_see(memory_mib: int, seen_gib: float) -> None:
    reserve = runtimes()["vllm"].reserve_bytes(memory_mib * MIB)
    assert (memory_mib * MIB - reserve) / GIB == pytest.approx(seen_gib, abs=0.06)


def test_every_figure_has_a_source() -> None:
    for figures in runtimes().values():
        assert all(len(entry.source) > 20 for entry in (*figures.sampler, *figures.process, *figures.graphs))
