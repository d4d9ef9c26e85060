"""Axes: where values lie, which values are labelled, and how labels keep apart."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.cli.page.scales import decades, from_zero, powers_of_two, short, spread, times


def labels(scale: Any) -> list[str]:
    return [scale.label(tick) for tick in scale.ticks]


def test_a_linear_axis_begins_at_zero_and_ends_at_a_round_number() -> None:
    scale = from_zero(1340, 200, 0)
    assert labels(scale) == ["0", "500", "1k", "1.5k"]
    assert (scale.at(0), scale.at(750), scale.at(1500)) == (200, 100, 0)


@pytest.mark.parametrize(("most", "top"), [(100, 100), (101, 150), (0.4, 0.4), (59.9, 60), (0, 1)])
def test_the_top_of_a_linear_axis(most: float, top: float) -> None:
    assert from_zero(most, 0, 1).high == pytest.approx(top)


def test_concurrency_is_an_axis_of_powers_of_two() -> None:
    scale = powers_of_two([1, 1024], 0, 100)
    assert labels(scale) == ["1", "4", "16", "64", "256", "1,024"]
    assert [scale.at(value) for value in (1, 32, 1024)] == pytest.approx([0, 50, 100])
    assert labels(powers_of_two([1, 8, 64], 0, 1)) == ["1", "4", "16", "64"]


def test_what_is_not_a_power_of_two_lies_between_two() -> None:
    scale = powers_of_two([3, 48], 0, 100)
    assert (scale.low, scale.high) == (2, 64)
    assert 0 < scale.at(3) < scale.at(4) < 100


def test_one_concurrency_lies_in_the_middle() -> None:
    assert powers_of_two([1], 0, 100).at(1) == 50


def test_latencies_are_an_axis_of_one_two_and_five() -> None:
    assert labels(decades([17, 210], 0, 1)) == ["10", "20", "50", "100", "200", "500"]
    assert labels(decades([60, 90_000], 0, 1)) == ["100", "1k", "10k", "100k"]
    scale = decades([10, 1000], 0, 100)
    assert [scale.at(value) for value in (10, 100, 1000)] == pytest.approx([0, 50, 100])


def test_times_have_days_or_hours() -> None:
    def moment(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    assert labels(times([moment("2026-11-01T08:00"), moment("2026-11-21T08:00")], 0, 1)) == [
        "3 Nov",
        "8 Nov",
        "13 Nov",
        "18 Nov",
    ]
    assert labels(times([moment("2026-11-01T08:00"), moment("2026-11-01T11:00")], 0, 1)) == [
        "08:00",
        "09:00",
        "10:00",
        "11:00",
    ]


FIGURES = {
    0: "0",
    0.25: "0.25",
    999: "999",
    999.4: "999",
    999.6: "1k",
    1500: "1.5k",
    999_600: "1M",
    2e6: "2M",
    1e12: "1T",
}


@pytest.mark.parametrize(("value", "text"), FIGURES.items())
def test_short_figures(value: float, text: str) -> None:
    assert short(value) == text


def test_labels_are_pushed_apart_and_stay_where_there_is_room() -> None:
    assert spread([50, 10], 12, 0, 100) == [50, 10]
    assert spread([50, 52, 51], 12, 0, 100) == [50, 74, 62]
    assert spread([99, 98], 12, 0, 100) == [100, 88]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=7))
def test_labels_never_lie_on_each_other_nor_beyond_the_drawing(wanted: list[float]) -> None:
    placed = sorted(spread(wanted, 12, 0, 100))
    assert all(after - before >= 12 - 1e-9 for before, after in pairwise(placed))
    assert min(placed) >= -1e-9 and max(placed) <= 100 + 1e-9


@given(st.lists(st.floats(0.001, 1e12), min_size=1, max_size=20))
def test_every_value_lies_on_its_axis(values: list[float]) -> None:
    for scale in (decades(values, 0, 100), from_zero(max(values), 0, 100)):
        assert scale.low <= min(values) * 1.000001 and scale.high >= max(values) * 0.999999
        assert 1 <= len(scale.ticks) <= 6
        assert all(0 <= scale.at(tick) <= 100 for tick in scale.ticks)
        assert not any("e" in label for label in labels(scale))


@given(st.floats(0.0001, 1e14))
def test_a_figure_of_a_label_has_no_exponent_and_is_right_to_three_digits(value: float) -> None:
    text = short(value)
    size = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1], 1)
    assert "e" not in text
    assert float(text.rstrip("kMGT")) * size == pytest.approx(value, rel=0.005)
