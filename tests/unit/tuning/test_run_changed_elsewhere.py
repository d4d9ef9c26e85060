"""A tuning whose host changes hands: while the question is open, and while it is at work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.facts.probe import Listener, Probe, UnitState
from rigup.lock import LockedSource
from rigup.operations.primitives import jobs, remote
from rigup.run.runner import Run
from rigup.tuning import run as tuning
from rigup.tuning.gain import gain_of
from rigup.tuning.run import TuningRequest, TuningResult, TuningRun
from tests.tuned_kernels import kernel
from tests.unit.preflight.test_checks import GOOD, PLAN
from tests.unit.run.test_runner_without_lease import AT_WORK, OTHER, somebody_else_is_at_work

Make = Callable[..., Run]
SOURCE = LockedSource(engine="vllm", version="0.33.0", address="pypi:vllm==0.33.0", sha256="e" * 64, root="vllm-0.33.0")
REQUEST = TuningRequest(PLAN, SOURCE, {"benchmark_moe.py": ""}, (1, 64), 5)
MEASURED = (kernel(), gain_of({"baseline": [{"1": 10.0}] * 3, "tuned": [{"1": 9.0}] * 3}))


def serving(**units: str) -> Probe:
    """A host on which services are in these states."""
    return replace(GOOD, units={name: UnitState(active=state) for name, state in units.items()})


@dataclass
class Box:
    """A host with a run that has met it, and what a tuning does there, in words."""

    root: Path
    run: TuningRun
    found: list[Probe]
    done: list[str] = field(default_factory=list)
    while_it_tunes: Callable[[], object] = lambda: None

    @property
    def errors(self) -> list[str]:
        return [error.message for error in self.run.results["box"].errors]

    def stage(self, host: Any, work: str, *_: Any) -> None:
        Path(work).mkdir(parents=True)
        self.done.append("staged")

    def tune(self, host: Any, job: jobs.Job) -> None:
        (self.root / "tuning" / job.unit.rpartition("-")[2] / "result.json").write_text(json.dumps({}))
        self.done.append(f"tuned without {', '.join(job.paused) or 'a pause'}")
        self.while_it_tunes()

    def is_broken(self) -> None:
        """Somebody breaks the lease, which this run finds out when it renews it."""
        (self.root / "run/lease/lease.json").write_text(json.dumps(OTHER._asdict()))
        self.run.context.leases["box"].renew()


@pytest.fixture
def box(local_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """A host where "chat" serves when it is met. Build and weights are there; the tuner is only noted."""
    run = local_run({"box": lambda root: None})
    run.__class__ = TuningRun
    assert isinstance(run, TuningRun)
    made = Box(tmp_path, run, [serving(chat="active")])
    monkeypatch.setattr("rigup.facts.probe.parse", lambda _: made.found[-1])
    monkeypatch.setattr(layout, "TUNING", str(tmp_path / "tuning"))
    monkeypatch.setattr(tuning, "_require", lambda *_: "/opt/rigup/builds/b")
    monkeypatch.setattr(tuning, "_digest", lambda *_: "digest")
    monkeypatch.setattr(tuning, "tuning_job", lambda *_: {})
    monkeypatch.setattr(tuning, "_goes_on", lambda *_: False)
    monkeypatch.setattr(tuning, "_stage", made.stage)
    monkeypatch.setattr(tuning, "_read", lambda *_: MEASURED)
    monkeypatch.setattr(jobs, "run", made.tune)
    monkeypatch.setattr(remote, "as_worker", lambda *words: words)  # there is no such user here
    with run:
        run.connect(take_lease=False)
        assert (run.idle_host(), run.serving("box")) == ("box", ("chat",))
        yield made


def test_what_serves_there_is_paused(box: Box) -> None:
    box.run.tune("box", REQUEST)
    assert (box.done, box.errors) == (["staged", "tuned without rigup-chat.service"], [])
    assert isinstance(box.run.outcome, TuningResult)
    assert not (box.root / "tuning/digest").exists()


def test_a_host_that_serves_gets_no_requests_meanwhile(box: Box) -> None:
    class Drains:
        def carry_out(self, batch: list[str], change: Callable[[], object]) -> None:
            box.done.append(f"out: {batch}")
            change()
            box.done.append("back")

    drains: Any = Drains()
    box.run.tune("box", REQUEST, drains)
    assert box.done == ["out: ['box']", "staged", "tuned without rigup-chat.service", "back"]


def test_a_service_that_came_while_the_question_was_open_was_not_asked_for(box: Box) -> None:
    box.found.append(serving(chat="active", code="activating"))
    box.run.tune("box", REQUEST)
    assert (box.done, box.run.outcome) == ([], None)
    assert box.errors == ["box: code started after the confirmation"]
    assert box.run.results["box"].errors[0].hint == "run the same command again"


def test_a_service_that_went_while_the_question_was_open_is_not_stopped(box: Box) -> None:
    box.found.append(serving(chat="inactive"))
    box.run.tune("box", REQUEST)
    assert box.done == ["staged", "tuned without a pause"]


def test_a_host_on_which_somebody_is_at_work_by_now_is_left_alone(box: Box) -> None:
    (box.root / "run/lease").mkdir(parents=True)
    somebody_else_is_at_work(box.root)
    box.run.tune("box", REQUEST)
    (error,) = box.errors
    assert AT_WORK in error
    assert box.done == []


def test_a_host_that_became_another_is_refused(box: Box) -> None:
    box.found.append(replace(box.found[0], os=""))
    box.run.tune("box", REQUEST)
    assert (box.done, box.errors) == ([], ["box: no response from the host probe"])


def test_no_tuner_starts_once_the_lease_is_broken(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_goes_on", lambda *_: box.is_broken())
    box.run.tune("box", REQUEST)
    (error,) = box.errors
    assert (box.done, error.startswith(f"box: {OTHER} ")) == ([], True)


def test_what_was_measured_stays_there_for_the_next_run_when_the_lease_is_broken_meanwhile(box: Box) -> None:
    box.while_it_tunes = box.is_broken
    box.run.tune("box", REQUEST)
    (error,) = box.errors
    assert (box.run.outcome, error.startswith(f"box: {OTHER} ")) == (None, True)
    assert (box.root / "tuning/digest/result.json").exists()


@pytest.mark.parametrize(
    "said",
    [
        "[]",
        "{}",
        '{"times": []}',
        '{"times": {"baseline": [], "tuned": []}}',
        '{"times": {"baseline": [{"1": -1}], "tuned": [{"1": 1}]}}',
        '{"times": {"baseline": [{"1": NaN}], "tuned": [{"1": 1}]}}',
        '{"times": {"baseline": [{"x": 1}], "tuned": [{"x": 1}]}}',
        '{"times": {"baseline": [{"1": "1"}], "tuned": [1]}}',
        "[" * 100_000,
        "nonsense",
    ],
)
def test_a_result_that_makes_no_sense_is_that_hosts_failure(
    box: Box, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(tuning, "_read", lambda _host, _request, result, _probe: (kernel(), gain_of(result["times"])))
    box.while_it_tunes = lambda: (box.root / "tuning/digest/result.json").write_text(said)
    box.run.tune("box", REQUEST)
    (error,) = box.errors
    assert error.startswith("box: ") and "digest/result.json" in error and len(error) < 500
    assert box.run.outcome is None


def test_nothing_is_paused_that_would_not_start_again(box: Box) -> None:
    probe = replace(box.found[0], releases={"chat": {"command": ["vllm", "--port", "8000", "--host", "0.0.0.0"]}})
    box.found.append(replace(probe, listeners=(Listener(8000, "10.0.0.1", "nginx.service", "nginx"),)))
    box.run.tune("box", REQUEST)
    assert box.done == [] and len(box.errors) == 1
