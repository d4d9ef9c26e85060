"""Steps beside one another, without SSH: what begins when, what waits for what, and how all of it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from pyinfra.api import deploy, operation

from rigup.errors import HostFailed
from rigup.host import state_of
from rigup.operations.driver import reboots
from rigup.operations.primitives import jobs, progress
from rigup.operations.primitives.steps import step
from rigup.run.chains import timing
from rigup.run.runner import Run
from tests.hostile import SAFETY_S
from tests.unit.run.test_runner import compared

Make = Callable[..., Run]
Work = Callable[[Any], None]


@pytest.fixture(autouse=True)
def nobody_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_cancelled", False)


@pytest.fixture
def log() -> list[str]:
    """What the steps did, in order."""
    return []


@operation()
def does(work: Work) -> Iterator[Any]:
    yield step(work)


@operation()
def does_nothing() -> Iterator[Any]:
    yield from ()


def role(name: str, *works: Work) -> Callable[[], None]:
    """A deploy of this name with an operation for each of the works."""

    def body() -> None:
        for number, work in enumerate(works):
            does(name=f"{name} {number}", work=work)

    return deploy(name)(body)  # type: ignore[no-any-return]


def says(log: list[str], *words: str) -> Work:
    """Work that says these words, with a pause before each but the first."""

    def work(host: Any) -> None:
        for number, word in enumerate(words):
            gevent.sleep(0.05 if number else 0)
            log.append(word)

    return work


def waits_for(log: list[str], word: str, then: str) -> Work:
    """Work that waits until somebody has said a word: it ends only where both are at work at the same time."""

    def work(host: Any) -> None:
        with gevent.Timeout(SAFETY_S):
            while word not in log:
                gevent.sleep(0.01)
        log.append(then)

    return work


def fails(message: str, after: Callable[[], bool] = lambda: True) -> Work:
    def work(host: Any) -> None:
        while not after():
            gevent.sleep(0.01)
        raise HostFailed(message)

    return work


def run_with(local_run: Make, *roles: Callable[[], None]) -> Run:
    def all_roles(root: Path) -> None:
        for each in roles:
            each()

    return local_run({"box": all_roles})


def executed(run: Run) -> Run:
    with gevent.Timeout(SAFETY_S), run:
        compared(run, lease=True)
        run.execute()
    return run


def test_weights_begin_after_base_and_are_waited_for_by_the_start_alone(local_run: Make, log: list[str]) -> None:
    run = executed(
        run_with(
            local_run,
            role("base", says(log, "base")),
            role("driver", waits_for(log, "weights begin", "driver")),
            role("engine", says(log, "build")),
            role("weights", says(log, "weights begin"), waits_for(log, "build", "weights")),
            role("service", says(log, "start")),
        )
    )
    assert log == ["base", "weights begin", "driver", "build", "weights", "start"]
    result = run.results["box"]
    assert result.state == "changed"
    assert [change.role for change in result.changes] == ["base", "driver", "engine", "weights", "weights", "service"]
    spans = {span.step: span.beside for span in result.spans}
    assert spans == {"base": False, "driver": False, "build": False, "weights": True, "start": False}


def test_what_has_nothing_to_do_is_not_a_change_and_takes_no_time(local_run: Make, log: list[str]) -> None:
    def nothing() -> None:
        does_nothing(name="as it should be")

    roles = (role("base", says(log, "base")), deploy("weights")(nothing), deploy("gateway")(nothing))
    result = executed(run_with(local_run, *roles)).results["box"]
    assert [change.role for change in result.changes] == ["base"]
    assert [span.step for span in result.spans] == ["base"]


def test_a_failed_step_ends_the_download_in_order(local_run: Make, log: list[str]) -> None:
    def download(host: Any) -> None:
        log.append("begun")
        try:
            gevent.sleep(3600)
        except jobs.Cancelled:
            log.append("stopped")
            raise

    broken = fails("box: no driver", after=lambda: "begun" in log)
    result = executed(run_with(local_run, role("driver", broken), role("weights", download))).results["box"]
    assert log == ["begun", "stopped"]
    assert (result.state, [error.message for error in result.errors]) == ("failed", ["box: no driver"])
    assert result.changes == []


def test_a_failed_download_ends_the_run_before_its_next_step(
    local_run: Make, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_with(
        local_run,
        role("driver", waits_for(log, "denied", "driver"), says(log, "reboot")),
        role("weights", says(log, "denied"), fails("box: the hub denies it")),
        role("service", says(log, "start")),
    )
    said: list[str] = []
    monkeypatch.setattr(progress, "_listeners", [lambda each: said.append(f"{each.step}: {each.text}")])
    result = executed(run).results["box"]
    assert log == ["denied", "driver"]
    assert "log: box: the hub denies it; the run ends after the step that is under way" in said
    assert [error.message for error in result.errors] == ["box: the hub denies it"]
    assert [change.step for change in result.changes] == ["driver 0", "weights 0"]


def test_two_failures_are_both_said(local_run: Make, log: list[str]) -> None:
    run = run_with(
        local_run,
        role("driver", fails("box: no driver", after=lambda: "denied" in log)),
        role("weights", says(log, "denied"), fails("box: the hub denies it")),
    )
    messages = {error.message for error in executed(run).results["box"].errors}
    assert messages == {"box: no driver", "box: the hub denies it"}


def test_ctrl_c_lets_the_download_end_by_itself(local_run: Make, log: list[str]) -> None:
    def download(host: Any) -> None:
        log.append("begun")
        while not jobs.cancelled():
            gevent.sleep(0.01)
        gevent.sleep(0.05)
        log.append("stopped its job")
        raise jobs.Cancelled("box: cancelled")

    def compiles(host: Any) -> None:
        while "begun" not in log:
            gevent.sleep(0.01)
        jobs.cancel()

    run = run_with(local_run, role("engine", compiles, says(log, "more")), role("weights", download))
    assert executed(run).results["box"].state == "cancelled"
    assert log == ["begun", "stopped its job"]


def test_a_lost_lease_leaves_the_download_to_the_other_run(local_run: Make, log: list[str]) -> None:
    def download(host: Any) -> None:
        log.append("begun")
        try:
            gevent.sleep(3600)
        except jobs.Cancelled:
            log.append("stopped")
            raise

    def loses(host: Any) -> None:
        while "begun" not in log:
            gevent.sleep(0.01)
        run.context.leases["box"].lost = "taken by ada@desk"

    run = run_with(local_run, role("engine", loses, says(log, "more")), role("weights", download))
    (error,) = executed(run).results["box"].errors
    assert "taken by ada@desk" in error.message
    assert log == ["begun"]


def test_a_lease_lost_while_the_start_waits_ends_the_run_at_once(local_run: Make, log: list[str]) -> None:
    def download(host: Any) -> None:
        run.context.leases["box"].lost = "taken by ada@desk"
        try:
            gevent.sleep(3600)
        except jobs.Cancelled:
            log.append("stopped")
            raise

    run = run_with(local_run, role("weights", download), role("service", says(log, "start")))
    (error,) = executed(run).results["box"].errors
    assert "taken by ada@desk" in error.message
    assert log == []


def test_a_reboot_interrupts_the_download_which_goes_on_behind_it(local_run: Make, log: list[str]) -> None:
    def download(host: Any) -> None:
        log.append("begun")
        if "down" not in log:
            gevent.sleep(3600)
        log.append("all there")

    def boots(host: Any) -> None:
        while "begun" not in log:
            gevent.sleep(0.01)
        state = state_of(host, reboots._Reboots)
        assert state.pause and state.resume
        gevent.sleep(0.1)
        began = time.monotonic()
        state.pause()
        log.append("down")
        gevent.sleep(0.1)
        state.times.append((began, time.monotonic()))
        log.append("up")
        state.resume()

    result = executed(
        run_with(
            local_run,
            role("driver", boots),
            role("weights", says(log, "token"), download),
            role("service", says(log, "start", "answers")),
        )
    ).results["box"]
    assert log == ["token", "begun", "down", "up", "begun", "all there", "start", "answers"]
    steps = [(each.step, each.beside) for each in timing.step_times(result.spans)]
    assert steps == [("driver", False), ("reboot", False), ("weights", True), ("start", False)]


def test_two_services_of_one_checkpoint_download_it_once(local_run: Make, log: list[str]) -> None:
    download = says(log, "weights")
    run = run_with(local_run, role("weights", download, download, says(log, "others")), role("service"))
    result = executed(run).results["box"]
    assert log == ["weights", "others"]
    assert [change.step for change in result.changes] == ["weights 0", "weights 2"]


def test_reports_name_the_chain_that_they_are_part_of(
    local_run: Make, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tells(host: Any) -> None:
        progress.report(progress.Progress(host.name, "engine", text="at work"))

    said: list[tuple[str, str]] = []
    monkeypatch.setattr(progress, "_listeners", [lambda each: said.append((each.text, each.chain))])
    executed(run_with(local_run, role("weights", tells), role("engine", tells)))
    assert ("at work", "weights") in said and ("at work", "") in said
