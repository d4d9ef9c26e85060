"""Predicted against measured: within 5 % in memory, within the range in speed, and the pages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rigup.plan import Speed
from rigup.planner.speed import decode_speed
from tests.unit.planner.asking import served
from tests.unit.planner.measured import MEMORY, RTX_3090_CARDS_GIB, SPEED, MeasuredMemory, MeasuredSpeed, fullest_gib

DOCS = Path(__file__).parents[4] / "docs"
DOCUMENT = (DOCS / "accuracy.md").read_text()
SPEED_DOCUMENT = (DOCS / "speed.md").read_text()


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row.what)
def test_memory_is_within_five_percent(row: MeasuredMemory) -> None:
    assert row.predicted(served(row.gpus, row.service, 512)) == pytest.approx(row.measured, rel=0.05)


@pytest.mark.parametrize("row", MEMORY, ids=lambda row: row.what)
def test_the_table_of_memory_is_true(row: MeasuredMemory) -> None:
    assert memory_line(row) in DOCUMENT


def test_the_cards_of_the_llama_cpp_row_are_shown_one_by_one() -> None:
    (row,) = (row for row in MEMORY if row.predicted is fullest_gib)
    memory = served(row.gpus, row.service, 512).memory
    predicted = [f"{(gpu.capacity_mib - gpu.free_mib) / 1024:.1f}" for gpu in memory]
    measured = [f"{card:.1f}" for card in RTX_3090_CARDS_GIB]
    first, second = (f"{', '.join(cards[:-1])} and {cards[-1]} GiB" for cards in (predicted, measured))
    assert f"is predicted as {first} and was measured as {second}:" in DOCUMENT


@pytest.mark.parametrize("row", SPEED, ids=lambda row: row.what)
def test_measured_speed_lies_in_the_range(row: MeasuredSpeed) -> None:
    estimate = estimated(row)
    assert estimate.low <= row.measured <= estimate.high


@pytest.mark.parametrize("row", SPEED, ids=lambda row: row.what)
def test_the_table_of_speed_is_true(row: MeasuredSpeed) -> None:
    assert speed_line(row) in SPEED_DOCUMENT


def test_the_error_of_the_estimate_is_stated() -> None:
    off = [abs(middle(row) / row.measured - 1) for row in SPEED]
    stated = re.search(r"off by (\d+) % on average and by (\d+) % at worst", SPEED_DOCUMENT)
    assert stated is not None
    assert (round(100 * sum(off) / len(off)), round(100 * max(off))) == (int(stated[1]), int(stated[2]))


def memory_line(row: MeasuredMemory) -> str:
    """One row of the table of memory in docs/accuracy.md."""
    predicted = row.predicted(served(row.gpus, row.service, 512))
    figure = "{:,.0f}" if row.measured > 1000 else "{:,.2f}"
    off = f"{predicted / row.measured - 1:+.1%}".replace("%", " %")
    verified = "verified" if row.verified else "plausible"
    values = f"{figure.format(predicted)} {row.unit} | {figure.format(row.measured)} {row.unit} | {off}"
    return f"| {row.what} | {values} | {verified} | {row.source} |"


def estimated(row: MeasuredSpeed) -> Speed:
    """The range behind as many tokens as the run had."""
    candidate = served(row.gpus, row.service, row.host_memory_gib, row.host_memory)
    return decode_speed(candidate, row.concurrency, tokens=row.tokens)


def middle(row: MeasuredSpeed) -> float:
    """The geometric middle of the estimated range."""
    estimate = estimated(row)
    return float((estimate.low * estimate.high) ** 0.5)


def speed_line(row: MeasuredSpeed) -> str:
    """One row of the table of speed in docs/speed.md."""
    estimate = estimated(row)
    off = f"{middle(row) / row.measured - 1:+.0%}".replace("%", " %")
    return f"| {row.what} | {estimate.low:,.0f} to {estimate.high:,.0f} | {row.measured:,.1f} | {off} | {row.source} |"
