"""Looking at hosts: what speaks against an apply there is drift; what is there is compared and asked all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import FactBase, deploy, operation

from rigup.cli.output.status_rows import row, set_states
from rigup.facts.probe import Disk, Listener, Nvidia, Probe, UnitState
from rigup.operations.primitives.steps import step
from rigup.operations.service.answer import Answer
from rigup.operations.service.history import RetainedRelease
from rigup.plan import Finding, Plan
from rigup.preflight.checks import preflight
from rigup.run import inspection, rollback, runner
from rigup.run.inspection import Inspection
from rigup.run.result import exit_code
from rigup.run.rollback import RollbackRun
from rigup.run.runner import Run
from tests.unit.preflight.test_checks import GOOD, NOW, PLAN

Make = Callable[..., Run]
RELEASE: dict[str, Any] = {"build": "b", "checkpoint": None, "command": [], "environment": {}}
SERVED = replace(
    GOOD,
    builds=("b",),
    units={"chat": UnitState(active="active")},
    current={"chat": "3"},
    releases={"chat": RELEASE},
)
FULL = replace(SERVED, disks=(Disk("/opt", True, 10**12), Disk("/var/lib", True, 5 * 10**10)))
LATE = replace(SERVED, clock=NOW - 400)
READ_ONLY = replace(SERVED, disks=(Disk("/opt", True, 10**12), Disk("/etc", False, 10**12)))
TAKEN = replace(SERVED, listeners=(Listener(8000, "127.0.0.1", "", "python3"),))


def turns_out_as(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host that is greeted does, at NOW."""
    monkeypatch.setattr("rigup.facts.probe.parse", lambda _: probe)
    monkeypatch.setattr(runner, "preflight", lambda found, plans, _, *more: preflight(found, plans, NOW, *more))


@pytest.fixture
def looking(local_run: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[[Probe], Inspection]:
    """Makes examinations of one host that turns out to be like this, where any question is answered."""
    monkeypatch.setattr(runner, "ask_service", lambda host, plan, **_: Answer("box", "chat", "hello", 1, 0.5, 80.0))
    monkeypatch.setattr(Inspection, "_manifest", lambda *_: RELEASE)

    def make(probe: Probe) -> Inspection:
        turns_out_as(probe, monkeypatch)
        run = local_run({"box": lambda root: None})
        run.__class__ = Inspection
        assert isinstance(run, Inspection)
        run.context.plans = {"box": (PLAN,)}
        return run

    return make


def seen(run: Inspection) -> list[tuple[str, str]]:
    run.note_drift()
    return [(found.what, found.message) for found in run.drift["box"]]


@pytest.mark.parametrize(
    ("probe", "named"),
    [(FULL, " 102.0 GB "), (LATE, " 400 s "), (READ_ONLY, "/etc "), (TAKEN, "port 8000 ")],
    ids=["full", "late", "read-only", "taken"],
)
def test_what_speaks_against_an_apply_is_drift_and_the_service_is_asked(
    looking: Callable[[Probe], Inspection], probe: Probe, named: str
) -> None:
    with looking(probe) as run:
        run.connect_and_probe()
        run.verify()
        ((what, message),) = seen(run)
        assert (what, named in message) == ("host", True)
        result = run.results["box"]
        shown = row(result, PLAN, run.drift["box"])
        set_states([result], [shown])
    assert (shown["health"], shown["drift"], result.errors) == ("answers", "host", [])
    assert exit_code([result]) == 1


def test_a_driver_that_runs_nothing_is_told_once(
    looking: Callable[[Probe], Inspection], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = replace(SERVED, nvidia=Nvidia(loaded="580.1", installed="590.2"))
    with looking(moved) as run:
        found = Finding(rule="host-driver", message="driver 580.1 is loaded and 590.2 is installed", hint="reboot it")
        monkeypatch.setattr(runner, "preflight", lambda *_: (found,))
        run.connect_and_probe()
        assert seen(run) == [("driver", "driver 580.1 is loaded and 590.2 is installed")]
        assert run.drift["box"][0].hint == "reboot it"


def test_diff_compares_a_host_that_an_apply_would_refuse(looking: Callable[[Probe], Inspection]) -> None:
    with looking(FULL) as run:
        run.connect_and_probe()
        run.compare()
        assert (run.results["box"].state, run.results["box"].errors) == ("pending", [])
        ((what, message),) = seen(run)
        assert (what, " 102.0 GB " in message) == ("host", True)


def test_a_host_that_rigup_knows_nothing_of_is_refused_and_its_service_not_asked(
    looking: Callable[[Probe], Inspection],
) -> None:
    strange = replace(SERVED, init="runit")
    with looking(strange) as run:
        run.connect_and_probe()
        run.verify()
        result = run.results["box"]
    assert [error.message for error in result.errors] == ["box: process 1 is runit, not systemd"]
    shown = row(result, PLAN, ())
    assert (shown["unit"], shown["health"]) == ("active", "not asked")
    assert exit_code([result]) == 2


class CannotBeRead(FactBase[dict[str, bool]]):
    """A command that fails, where pyinfra by itself would go on with the default."""

    default = dict

    def command(self) -> str:
        return "echo broken >&2; false"


@operation()
def needs() -> Any:
    from pyinfra import host

    if not host.get_fact(CannotBeRead):
        yield step(lambda _: None)


@deploy("role")
def role(root: Path) -> None:
    needs(name="puts the thing there")


def test_of_another_rig_than_declared_a_fact_that_cannot_be_read_is_not_taken_for_nothing_there(
    local_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (Finding(rule="host-gpus", message="declared: 4x RTX 3090; found: 3x RTX 3090"),)
    monkeypatch.setattr(runner, "preflight", lambda *_: other)
    monkeypatch.setattr(inspection, "differences", lambda *_: other)
    with local_run({"box": role, "two": role}) as run:
        run.__class__ = Inspection
        assert isinstance(run, Inspection)
        run.context.plans = dict.fromkeys(run.plans, (PLAN,))
        run.connect_and_probe()
        run.compare()
    assert [result.changes for result in run.results.values()] == [[], []]
    for name, result in run.results.items():
        (error,) = result.errors
        assert error.message.startswith(f"{name}: CannotBeRead ") and error.message.endswith(": broken")


def kept(plan: Plan = PLAN) -> dict[str, tuple[RetainedRelease, ...]]:
    releases = (RetainedRelease("chat", 1, 0, False, True, {}), RetainedRelease("chat", 2, 0, True, True, {}))
    return {plan.service.name: releases}


@pytest.fixture
def going_back(local_run: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[[Probe], RollbackRun]:
    """Makes rollbacks of one host with two releases that turns out to be like this."""
    monkeypatch.setattr(rollback, "read_kept", lambda host: kept())
    monkeypatch.setattr(rollback, "check_there", lambda *_: None)

    def make(probe: Probe) -> RollbackRun:
        turns_out_as(probe, monkeypatch)
        run = local_run({"box": lambda root: None})
        run.__class__ = RollbackRun
        assert isinstance(run, RollbackRun)
        return run

    return make


@pytest.mark.parametrize("probe", [LATE, READ_ONLY], ids=["late", "read-only"])
def test_releases_are_told_of_any_host(going_back: Callable[[Probe], RollbackRun], probe: Probe) -> None:
    with going_back(probe) as run:
        run.connect(take_lease=False)
        run.read()
    assert run.kept == {"box": kept()}
    assert run.results["box"].errors == []


def test_a_clock_that_is_off_keeps_nobody_from_going_back(going_back: Callable[[Probe], RollbackRun]) -> None:
    with going_back(LATE) as run:
        run.connect(take_lease=True)
        run.plan_rollback(None, None)
        assert [step.name for step in run.steps["box"]] == ["release 1 of chat (now 2)"]


def test_where_nothing_can_be_written_nothing_goes_back(going_back: Callable[[Probe], RollbackRun]) -> None:
    with going_back(READ_ONLY) as run:
        run.connect(take_lease=True)
        run.plan_rollback(None, None)
    (error,) = run.results["box"].errors
    assert error.message.startswith("box: /etc ")
    assert run.steps == {"box": ()}
