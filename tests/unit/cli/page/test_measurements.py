"""Which of the stored benchmarks a page shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rigup.bench.comparison import level_of
from rigup.bench.store import kept_results, store
from rigup.cli.page.measurements import before, best_rate, histories, singles, sweeps, usable
from tests.unit.cli.page.page_content import level, result, results


def test_the_last_sweep_is_shown_with_the_one_before_it() -> None:
    (sweep,) = sweeps(results())
    assert sweep.result["began"] == "2026-11-21T09:00:00Z"
    assert [one["concurrency"] for one in sweep.levels] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    earlier = before(sweep, results())
    assert earlier is not None and earlier.result["began"] == "2026-11-06T09:00:00Z"
    assert before(earlier, results()) is None


def test_sweeps_of_two_lengths_are_two() -> None:
    levels = [level(n, lengths=lengths) for lengths in ((64, 16), (2048, 512)) for n in (4, 1)]
    found = sweeps([result("2026-11-21T08:00:00Z") | {"levels": levels}])
    assert [(one.input, [each["concurrency"] for each in one.levels]) for one in found] == [
        (64, [1, 4]),
        (2048, [1, 4]),
    ]


def test_the_last_run_that_is_not_a_sweep_is_shown_beside_it() -> None:
    found = singles(results())
    assert found is not None
    assert (found[0]["began"], [level_of(one) for one in found[1]]) == ("2026-11-21T08:00:00Z", [(1, 256, 100)])
    assert singles(results()[:1]) is None


def test_history_is_of_levels_that_were_measured_again() -> None:
    (found,) = histories(results())
    assert (found.key, [moment.release for moment in found.rates]) == ((1, 256, 100), ["2", "3", "3", "4", "4"])
    assert [moment.time for moment in found.rates] == sorted(moment.time for moment in found.rates)
    assert histories(results()[:1]) == []


def test_a_level_that_was_broken_off_is_not_history() -> None:
    runs = [result(f"2026-11-{day}T08:00:00Z", (1,)) for day in (20, 21)]
    runs[0]["levels"][0]["complete"] = False
    assert histories(runs) == []


def test_the_best_rate_is_of_the_newest_result() -> None:
    newest = max(one["output_tokens_per_second"]["mean"] for one in results()[0]["levels"])
    assert (best_rate(results()), best_rate(())) == (newest, None)


def test_results_are_found_where_bench_keeps_them_newest_first(tmp_path: Path) -> None:
    runs = [result(f"2026-11-{day:02}T08:00:00Z", (1,)) for day in range(1, 6)]
    for run in runs:
        store(tmp_path, run)
    (tmp_path / "results/gpu1.lan/chat/99999999T000000Z.json").write_text("{")
    (tmp_path / "results/gpu1.lan/chat/notes.txt").write_text("")
    found = kept_results(tmp_path, "gpu1.lan", "chat", most=4)
    assert [one["began"][8:10] for one in found] == ["05", "04", "03"]
    assert kept_results(tmp_path, "gpu2.lan", "chat") == []


BROKEN: list[dict[str, Any]] = [
    {"began": "yesterday"},
    {"began": None},
    {"began": "0001-01-01"},
    {"levels": [{}]},
    {"levels": [level(1) | {"concurrency": "1"}]},
    {"levels": [level(1) | {"ttft_ms": {"p50": 1}}]},
    {"levels": [level(1) | {"engine": {"capped": True}}]},
    {"levels": [level(1) | {"output_tokens_per_second": {"mean": -1}}]},
    {"levels": [level(1) | {"output_tokens_per_second": {"mean": float("inf")}}]},
    {"levels": [level(1) | {"output_tokens_per_second": {"mean": float("nan")}}]},
    {"levels": [level(1) | {"output_tokens_per_second": {"mean": 2e12}}]},
    {"levels": [level(1) | {"requests_per_second": {"mean": 10**400}}]},
    {"levels": [level(1) | {"complete": "yes"}]},
    {"levels": {}},
    {"notes": 5},
    {"drift": "all"},
    {"endpoint": None},
]


@pytest.mark.parametrize("wrong", BROKEN, ids=lambda wrong: json.dumps(wrong)[:40])
def test_a_file_that_somebody_changed_is_not_a_result(wrong: dict[str, Any]) -> None:
    assert usable(result("2026-11-21T08:00:00Z"))
    assert not usable(result("2026-11-21T08:00:00Z") | wrong)
    assert not usable([]) and not usable({})
