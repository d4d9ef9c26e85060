"""The figures of speed against published runs, of which a third was not looked at when they were fitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.catalogue.paces import paces
from tests.measured.paces import LLAMA_CPP, TENSOR_ENGINES, minimax, of, runs, summary, within

DOCUMENT = (Path(__file__).parents[3] / "docs/speed.md").read_text()
WIDEST = 2.5
"""Between the ends of a range for one request."""


@pytest.mark.parametrize("engines", (LLAMA_CPP, TENSOR_ENGINES), ids=("llama.cpp", "tensor engines"))
def test_nine_of_ten_runs_of_one_request_that_were_kept_back_lie_in_their_range(engines: tuple[str, ...]) -> None:
    alone = [run for run in of(engines, kept_back=True) if run.step.sequences == 1]
    assert len(alone) >= 20
    assert within(alone) >= 0.9
    assert all(paces()[run.engine].spread ** 2 <= WIDEST + 0.01 for run in alone)


def test_the_runs_are_many_and_no_source_has_more_than_a_few() -> None:
    threads = [run.thread for run in runs()]
    assert len(runs()) >= 120
    assert max(threads.count(thread) for thread in set(threads) if not thread.startswith("docs/")) <= 4
    assert 0.2 < sum(run.kept_back for run in runs()) / len(runs()) < 0.45
    assert all(run.url for run in runs())


def test_minimax_lies_in_its_ranges() -> None:
    assert within(minimax()) >= 0.9


@pytest.mark.parametrize("line", summary())
def test_the_page_says_how_far_estimates_are_off(line: str) -> None:
    assert line in DOCUMENT
