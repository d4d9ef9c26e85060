"""How long an apply will take, by the records of earlier ones."""

from __future__ import annotations

from typing import Any

from rigup.run.chains.estimate import estimate, kinds_of, newest_times
from rigup.run.chains.timing import StepTime, line

GB = 10**9


def step(name: str, seconds: float, size: int = 0, beside: bool = False) -> dict[str, Any]:
    return StepTime(name, seconds, beside, critical=True, bytes=size).as_json()


# What an apply does in each step, as a record has it.
CHANGES = (
    "base: Debian packages curl, git",
    "driver: driver held at 580.95.05, nouveau off",
    "driver: driver 580.95.05: not installed",
    "driver: load driver 580.95.05: none is loaded",
    "engine: build llama.cpp-b11434-4711",
    "weights: some/model Q4",
    "service: release of chat",
)
PENDING = kinds_of((role, name) for role, _, name in (text.partition(": ") for text in CHANGES))


def record(
    when: str, *steps: dict[str, Any], result: str = "changed", changes: tuple[str, ...] = CHANGES
) -> dict[str, Any]:
    return {"when": f"2026-11-{when}", "result": result, "steps": list(steps), "changes": list(changes)}


FIRST = record(
    "20",
    step("base", 12),
    step("driver", 190),
    step("reboot", 100),
    step("build", 500),
    step("weights", 100, 10 * GB, beside=True),
    step("start", 60),
)
PAST = newest_times([FIRST], PENDING)


def test_weights_take_their_bytes_at_the_rate_of_the_last_time() -> None:
    found = estimate({"base", "driver", "build", "weights", "start"}, PAST, 200 * GB)
    assert found and found.seconds == 12 + 2000 + 60
    assert line(found.times) == (
        "base 12.0 s · driver 4 min 50 s · build 8 min 20 s | weights 33 min 20 s · start 1 min 00 s"
    )
    assert [time.step for time in found.times if time.critical] == ["base", "weights", "start"]


def test_few_weights_hide_behind_the_build() -> None:
    found = estimate({"base", "driver", "build", "weights", "start"}, PAST, GB)
    assert found and found.seconds == 12 + 290 + 500 + 60


def test_only_pending_steps_count() -> None:
    found = estimate({"start"}, PAST, 0)
    assert found and found.seconds == 60


def test_what_was_never_timed_is_not_guessed() -> None:
    assert estimate({"base", "environment", "start"}, PAST, 0) is None
    assert estimate({"weights"}, newest_times([record("20", step("weights", 5))], PENDING), GB) is None
    assert estimate(set(), PAST, 0) is None


def test_the_newest_good_record_counts_and_those_without_times_are_passed_over() -> None:
    later = record("22", step("base", 5))
    failed = record("23", step("base", 1), result="failed")
    old = {"when": "2026-11-01", "result": "changed", "changes": []}
    assert newest_times([later, failed, FIRST, old], PENDING)["base"].seconds == 5


def test_a_step_that_did_less_the_last_time_says_nothing_of_it() -> None:
    hold = record("24", step("driver", 0.1), changes=CHANGES[1:2])
    assert newest_times([FIRST, hold], PENDING)["driver"].seconds == 290
    assert newest_times([FIRST, hold], {"driver": PENDING["driver"] - {"driver held"}})["driver"].seconds == 290
    assert newest_times([hold], PENDING) == {}


def test_a_step_that_did_just_the_same_counts_before_one_that_did_more() -> None:
    hold = record("18", step("driver", 0.1), changes=("driver: driver held at 590.48.01, nouveau off",))
    assert newest_times([FIRST, hold], {"driver": frozenset({"driver held"})})["driver"].seconds == 0.1


def test_the_kind_of_a_change_has_no_version_and_no_name() -> None:
    assert PENDING["driver"] == {"driver held", "driver", "load driver"}
    assert PENDING["start"] == {"release of"} and PENDING["base"] == {"Debian packages"}


def test_a_measured_rate_counts_more_than_that_of_the_last_time() -> None:
    found = estimate({"weights", "start"}, PAST, 200 * GB, rate=2e8)
    assert found and found.seconds == 1000 + 60
    assert estimate({"weights", "environment"}, PAST, GB, rate=2e8) is None
