"""What the client measures is what the endpoint did: held against when the mock itself says that it sent each token."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from rigup.programs.bench import bench_load
from rigup.programs.bench.bench_endpoint import open_endpoint
from rigup.programs.bench.bench_load import Level, LevelResult, Load
from rigup.programs.bench.bench_statistics import PARTS, distribution, figures
from rigup.programs.bench.bench_target import Target
from tests.unit.bench.conftest import Engine

WITHIN = 0.02
ATTEMPTS = 5
"""A busy machine may stop the mock between looking at its clock and sending."""


def run(engine: Engine, level: Level, report: Callable[[dict[str, Any]], None] = lambda said: None) -> LevelResult:
    endpoint = open_endpoint(Target.of(engine.url, None), None, False, 20, seed=1)
    return Load(endpoint, level, "level", 1, lambda: False, report).run()


def sent(engine: Engine, outcome: LevelResult) -> dict[str, Any]:
    """The figures as they follow from the mock's clock; a request begins when the client began to send it."""
    times = engine.times()
    records = [record for record in outcome.records if record.counted]
    tokens = {record.name: [before for before, _ in times[record.name]] for record in records}
    first, last = ({name: each[place] for name, each in tokens.items()} for place in (0, -1))
    gaps = [1000 * (each[n] - each[n - 1]) for each in tokens.values() for n in range(1, len(each))]
    return {
        "ttft_ms": distribution([[1000 * (first[record.name] - record.started) for record in records]]),
        "tpot_ms": distribution([[1000 * (last[n] - first[n]) / (len(tokens[n]) - 1) for n in tokens]]),
        "itl_ms": distribution([gaps]),
    }


def test_a_build_of_rigups_is_named_once(engine: Callable[..., Engine]) -> None:
    """It is compiled from an archive: the engine has its number in the place of a commit, too."""
    for said, version in (("b11434-b11434", "b11434"), ("b11434-0badc0de", "b11434-0badc0de")):
        target = Target.of(engine(style="llama.cpp", build=said).url, None)
        assert open_endpoint(target, None, False, 20, seed=1).version == version


def test_latencies_of_known_delays_are_exact_within_two_percent(engine: Callable[..., Engine]) -> None:
    wrong = ["not measured"]
    for _ in range(ATTEMPTS):
        mock = engine(ttft=0.15, itl=0.015)
        outcome = run(mock, Level(4, 64, 20, requests=12))
        found, expected = figures(outcome.records, outcome.begin, outcome.end, evenly=False), sent(mock, outcome)
        assert (found["requests"]["counted"], found["failures"]) == (12, {})
        wrong = [
            (name, statistic)
            for name, statistic in product(("ttft_ms", "tpot_ms", "itl_ms"), ("mean", "p50"))
            if found[name][statistic] != pytest.approx(expected[name][statistic], rel=WITHIN)
        ]
        if not wrong:
            break
    assert wrong == []
    assert found["ttft_ms"]["mean"] >= 150
    assert found["tpot_ms"]["mean"] > 15 * (1 - WITHIN)


def test_throughput_of_known_delays_is_exact_within_two_percent(engine: Callable[..., Engine]) -> None:
    mock = engine(ttft=0.05, itl=0.01)
    outcome = run(mock, Level(3, 32, 10, seconds=1))
    found = figures(outcome.records, outcome.begin, outcome.end, evenly=True)
    known = {record.name for record in outcome.records}
    when = [before for name, each in mock.times().items() if name in known for before, _ in each]
    count = sum(outcome.begin <= each <= outcome.end for each in when)
    assert found["output_tokens_per_second"]["mean"] == pytest.approx(count, rel=WITHIN)
    assert len(found["output_tokens_per_second"]["parts"]) == PARTS
    assert found["window_s"] == pytest.approx(1)
    # a request that began before the window is not among those whose latency counts
    assert all((record.started >= outcome.begin) == record.counted for record in outcome.records if record.ended)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel says when a packet arrived on Linux only")
def test_a_client_that_is_late_makes_no_latency_longer(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_load, "REPORT_SECONDS", 0.15)
    mock = engine(ttft=0.1)
    outcome = run(mock, Level(4, 64, 1, requests=16), lambda said: time.sleep(0.3))
    times = mock.times()
    expected = [times[record.name][0][0] - record.started for record in outcome.records]
    found = [record.arrivals[0] - record.started for record in outcome.records]
    assert max(outcome.late) > 0.1
    assert sum(found) / len(found) == pytest.approx(sum(expected) / len(expected), rel=WITHIN)
    assert max(found) < max(expected) + 0.05


def test_the_first_answers_of_a_timed_level_have_different_lengths(engine: Callable[..., Engine]) -> None:
    outcome = run(engine(itl=0.001), Level(16, 32, 64, seconds=0.2))
    lengths = {len(record.arrivals) for record in outcome.records[:16]}
    assert len(lengths) > 4
    assert not any(record.counted for record in outcome.records[:16])
    assert {len(record.arrivals) for record in outcome.records if record.counted} == {64}
