"""Contiguous runs of layers over GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.planner.memory.placement import partition

MIB = 2**20


def test_equal_gpus_share_equally() -> None:
    assert partition([10.0 * MIB] * 62, [1000.0 * MIB] * 2) == (31, 31)


def test_a_larger_gpu_takes_more() -> None:
    counts = partition([2000.0 * MIB] * 62, [90_000.0 * MIB, 28_000.0 * MIB, 28_000.0 * MIB])
    assert counts is not None
    assert sum(counts) == 62
    assert counts[0] > counts[1] >= counts[2]


def test_the_first_layers_may_be_lighter() -> None:
    light, heavy = 10.0 * MIB, 100.0 * MIB
    counts = partition([light] * 10 + [heavy] * 10, [600.0 * MIB, 600.0 * MIB])
    assert counts == (15, 5)


def test_whole_layers_that_do_not_fit_are_refused() -> None:
    assert partition([3.0] * 4, [7.0, 5.0]) is None
    assert partition([3.0] * 4, [6.0, 6.0]) == (2, 2)


def test_every_gpu_gets_a_layer_or_there_is_no_answer() -> None:
    assert partition([1.0] * 3, [100.0, 100.0, 100.0]) == (1, 1, 1)
    assert partition([1.0] * 2, [100.0, 100.0, 100.0]) is None
    assert partition([1.0] * 8, [100.0, 0.5]) is None


costs = st.lists(st.integers(1, 3000).map(lambda n: float(n * MIB)), min_size=1, max_size=70)
rooms = st.lists(st.integers(0, 100_000).map(lambda n: float(n * MIB)), min_size=1, max_size=8)


@given(costs, rooms)
def test_the_parts_add_up_and_fit(costs: list[float], rooms: list[float]) -> None:
    counts = partition(costs, rooms)
    if counts is None:
        return
    assert sum(counts) == len(costs)
    start = 0
    for count, room in zip(counts, rooms, strict=True):
        assert count >= 1
        assert sum(costs[start : start + count]) <= room
        start += count


@given(costs, rooms, st.integers(0, 7), st.integers(0, 50_000))
def test_more_room_never_makes_it_impossible(costs: list[float], rooms: list[float], gpu: int, more: int) -> None:
    if partition(costs, rooms) is not None:
        larger = list(rooms)
        larger[gpu % len(rooms)] += more * MIB
        assert partition(costs, larger) is not None


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_the_fullest_gpu_is_as_empty_as_can_be(gpus: int) -> None:
    counts = partition([1000.0 * MIB] * 62, [70_000.0 * MIB] * gpus)
    assert counts is not None
    assert max(counts) == -(-62 // gpus)


def test_a_gpu_is_not_filled_up_where_the_next_one_could_not_hold_the_rest() -> None:
    costs, rooms = [1.0, 1.0, 1.0, 2017.0, 115.0, 116.0, 1.0], [2134.0, 115.0, 117.0]
    assert partition(costs, rooms) == (4, 1, 2)
    assert partition(costs, [2135.0, 115.0, 117.0]) == (4, 1, 2)
    assert partition(costs, [2135.0, 114.0, 117.0]) is None


def by_trying(costs: list[float], rooms: list[float]) -> bool:
    if not rooms:
        return not costs
    most = range(1, len(costs) + 1)
    return any(sum(costs[:count]) <= rooms[0] and by_trying(costs[count:], rooms[1:]) for count in most)


@given(
    st.lists(st.integers(1, 9).map(float), min_size=1, max_size=7),
    st.lists(st.integers(0, 20).map(float), max_size=4, min_size=1),
)
def test_there_is_an_answer_wherever_trying_them_all_finds_one(costs: list[float], rooms: list[float]) -> None:
    assert (partition(costs, rooms) is not None) == by_trying(costs, rooms)
