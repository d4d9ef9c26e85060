"""What the client measures is what the endpoint did: held against when the mock itself says that it sent each token."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from rigup.programs.bench import bench_load
from rigup.programs.bench.bench_endpoint import open_endpoint
from rigup.programs.bench.bench_load import Level, LevelResult, Load
from rigup.programs.bench.bench_statistics import PARTS, distribution, figures
from rigup.programs.bench.bench_target import Target
from tests.unit.bench.conftest import Engine

CLOCKS_S = 0.001
"""What reading two clocks may differ by."""


def run(engine: Engine, level: Level, report: Callable[[dict[str, Any]], None] = lambda said: None) -> LevelResult:
    endpoint = open_endpoint(Target.of(engine.url, None), None, False, 20, seed=1)
    return Load(endpoint, level, "level", 1, lambda: False, report).run()


def when_sent(engine: Engine, outcome: LevelResult) -> None:
    """Each token arrived after the mock sent it, and nearly each before the mock looked at its clock again.

    A packet on loopback has a time when it is sent, but while the processors are busy with others, a few packets wait.
    """
    times = engine.times()
    late = []
    for record in outcome.records:
        sends = times[record.name]
        assert len(record.arrivals) <= len(sends)
        for number, arrival in enumerate(record.arrivals):
            # or with a later one that the kernel had by when the client read
            of = sends[number:]
            assert any(before - CLOCKS_S <= arrival for before, _ in of), (number, arrival, of)
            late.append(not any(before - CLOCKS_S <= arrival <= after + CLOCKS_S for before, after in of))
    assert sum(late) <= len(late) / 4


def test_a_build_of_rigups_is_named_once(engine: Callable[..., Engine]) -> None:
    """It is compiled from an archive: the engine has its number in the place of a commit, too."""
    for said, version in (("b11434-b11434", "b11434"), ("b11434-0badc0de", "b11434-0badc0de")):
        target = Target.of(engine(style="llama.cpp", build=said).url, None)
        assert open_endpoint(target, None, False, 20, seed=1).version == version


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel says when a packet arrived on Linux only")
def test_latencies_are_those_of_the_endpoint(engine: Callable[..., Engine]) -> None:
    mock = engine(ttft=0.15, itl=0.015)
    outcome = run(mock, Level(4, 64, 20, requests=12))
    when_sent(mock, outcome)
    found = figures(outcome.records, outcome.begin, outcome.end, evenly=False)
    assert (found["requests"]["counted"], found["failures"]) == (12, {})
    assert found["ttft_ms"]["mean"] >= 150
    records = [record for record in outcome.records if record.counted]
    first = [1000 * (record.arrivals[0] - record.started) for record in records]
    spread = [1000 * (record.arrivals[-1] - record.arrivals[0]) / 19 for record in records]
    gaps = [1000 * (later - sooner) for record in records for sooner, later in pairwise(record.arrivals)]
    for name, values in (("ttft_ms", first), ("tpot_ms", spread), ("itl_ms", gaps)):
        expected = distribution([values])
        assert [found[name][each] for each in ("mean", "p50")] == pytest.approx([expected["mean"], expected["p50"]])


def test_throughput_is_what_arrived_in_the_window(engine: Callable[..., Engine]) -> None:
    mock = engine(ttft=0.05, itl=0.01)
    outcome = run(mock, Level(3, 32, 10, seconds=1))
    found = figures(outcome.records, outcome.begin, outcome.end, evenly=True)
    arrivals = [arrival for record in outcome.records for arrival in record.arrivals]
    count = sum(outcome.begin <= arrival <= outcome.end for arrival in arrivals)
    assert found["output_tokens_per_second"]["mean"] == pytest.approx(count)
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
    assert max(outcome.late) > 0.1
    when_sent(mock, outcome)


def test_the_first_answers_of_a_timed_level_have_different_lengths(engine: Callable[..., Engine]) -> None:
    outcome = run(engine(itl=0.001), Level(16, 32, 64, seconds=1))
    lengths = {len(record.arrivals) for record in outcome.records[:16]}
    assert len(lengths) > 4
    assert not any(record.counted for record in outcome.records[:16])
    assert {len(record.arrivals) for record in outcome.records if record.counted} == {64}
