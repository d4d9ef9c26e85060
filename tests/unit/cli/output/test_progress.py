"""Progress as lines and as events: a line for each chain, with its rate and the time left."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rigup.cli.output import progress as live
from rigup.operations.primitives.progress import Progress
from rigup.run.chains.rates import ProgressRate


class Clock:
    """Stands for time.monotonic."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(live, "time", clock)
    yield clock


def weights(done: int) -> Progress:
    return Progress("gpu1", "weights", done, 1000_000_000, "bytes", chain="weights")


def test_a_rate_needs_a_few_seconds_and_forgets_what_is_long_ago() -> None:
    rate = ProgressRate()
    rate.count(0, 0)
    rate.count(1, 10)
    assert rate.per_second is None and rate.seconds_left(100) is None
    rate.count(4, 40)
    assert [rate.per_second, rate.seconds_left(100)] == [10, 6]
    for second in range(5, 40):
        rate.count(second, 40 + (second - 4))
    assert rate.per_second == 1
    rate.count(41, 0)
    assert rate.per_second is None, "a counter that begins again has no rate"


def test_chains_of_a_host_have_their_own_lines(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    view = live.PlainProgress()
    for second in range(12):
        clock.now = 1000.0 + second
        view.show(Progress("gpu1", "driver", text="installing 580.95.05"))
        view.show(weights(second * 100_000_000 // 2))
    assert capsys.readouterr().err.splitlines() == [
        "gpu1  driver  installing 580.95.05",
        "gpu1  weights  0 B of 1.0 GB",
        "gpu1  driver  installing 580.95.05  (10.0 s)",
        "gpu1  weights  500.0 MB of 1.0 GB, 50.0 MB/s, 10.0 s left  (10.0 s)",
    ]


def test_steps_that_are_counted_have_no_bytes(clock: Clock) -> None:
    rate = ProgressRate()
    rate.count(0, 0)
    rate.count(10, 20)
    assert live.progress_text(Progress("gpu1", "engine", 20, 220, "steps"), rate) == "20 of 220 steps, 1 min 40 s left"
    assert live.progress_text(Progress("gpu1", "engine", 220, 220, "steps"), rate) == "220 of 220 steps"


def test_events_are_lines_of_json_at_most_once_a_second(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    view = live.view(events=True)
    for tenth in range(41):
        clock.now = 1000.0 + tenth / 10
        view.show(weights(tenth * 10_000_000))
    view.show(Progress("gpu1", "service", text="waiting for weights"))
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event["done"] for event in events] == [0, 100_000_000, 200_000_000, 300_000_000, 400_000_000, 0]
    assert events[4] == {
        "schema": 1,
        "host": "gpu1",
        "chain": "weights",
        "step": "weights",
        "text": "",
        "done": 400_000_000,
        "total": 1000_000_000,
        "unit": "bytes",
        "per_second": 100_000_000.0,
        "seconds_left": 6.0,
    }
    assert (events[5]["chain"], events[5]["text"], events[5]["per_second"]) == ("main", "waiting for weights", None)


def test_bars_for_each_chain_of_eight_hosts(clock: Clock) -> None:
    view = live.RichProgress()
    for second in range(6):
        clock.now = 1000.0 + second
        for number in range(8):
            view.show(Progress(f"gpu{number}", "engine", second, 10, "steps", "compiling"))
            done = second * 10**8
            view.show(Progress(f"gpu{number}", "weights", done, 10**9, "bytes", chain="weights"))
    tasks = {(task.fields["host"], task.fields["step"]): task for task in view.bars.tasks}
    assert set(tasks) == {(f"gpu{number}", step) for number in range(8) for step in ("engine", "weights")}
    weights = tasks["gpu7", "weights"]
    assert (weights.completed, weights.total) == (5 * 10**8, 10**9)
    assert weights.description == "500.0 MB of 1.0 GB, 100.0 MB/s, 5.00 s left"
    assert tasks["gpu7", "engine"].description == "compiling 5 of 10 steps, 5.00 s left"


def ended(step: str = "weights", text: str = "", chain: str = "weights") -> Progress:
    return Progress("gpu1", step, text=text, chain=chain, ended=True)


def test_a_chain_that_has_ended_leaves_the_screen_with_a_line_above() -> None:
    view = live.RichProgress()
    view.show(Progress("gpu1", "driver", text="installing 580.95.05"))
    view.show(weights(0))
    assert [task.fields["step"] for task in view.bars.tasks] == ["driver", "weights"]
    with view.bars.console.capture() as printed:
        view.show(ended(text="done in 4.08 s"))
    assert [task.fields["step"] for task in view.bars.tasks] == ["driver"]
    assert printed.get().split() == ["gpu1", "weights:", "done", "in", "4.08", "s"]
    view.show(ended("", chain=""))
    assert view.bars.tasks == []
    view.show(Progress("gpu1", "verify"))
    assert [task.fields["step"] for task in view.bars.tasks] == ["verify"]


def test_the_end_of_a_chain_is_a_line_only_where_it_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    for view in (live.PlainProgress(), live.ProgressEvents()):
        view.show(weights(0))
        view.show(ended("", chain=""))
        view.show(ended(text="done in 4.08 s"))
        assert len(capsys.readouterr().err.splitlines()) == 2


def test_how_long_a_chain_took_is_said_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    view = live.PlainProgress()
    view.show(weights(0))
    clock.now += 4
    view.show(ended(text="done in 4.00 s"))
    assert capsys.readouterr().err.splitlines()[-1] == "gpu1  weights  done in 4.00 s"
