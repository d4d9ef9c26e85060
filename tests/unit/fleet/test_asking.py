"""Asking the services of hosts, and tuning on one: what speaks against an apply there says nothing about either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rigup.facts.probe import Probe
from rigup.fleet.asking import AskingRun
from rigup.fleet.runner import Run
from rigup.fleet.tuning import TuningRun
from rigup.plan import Plan
from tests.unit.fleet.test_examination import FULL, LATE, READ_ONLY, SERVED, TAKEN, turns_out_as
from tests.unit.fleet.test_preflight import CARDS, FOUR, PLAN

Make = Callable[..., Run]
FAULTY = replace(SERVED, gpus=CARDS[:3])
NO_SUCH_CARD = "box: declared: 4x NVIDIA GeForce RTX 3090; found: 3x NVIDIA GeForce RTX 3090"


@pytest.fixture
def connected(local_run: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes runs of this kind that have met their one host, which turned out to be like this."""

    def make(kind: type[Run], probe: Probe, plan: Plan = PLAN) -> Any:
        turns_out_as(probe, monkeypatch)
        run = local_run({"box": lambda root: None})
        run.__class__ = kind
        run.plans = {"box": (plan,)}
        with run:
            run.connect(take_lease=kind is AskingRun)
            if isinstance(run, AskingRun):
                run.found = run.ask(None, lambda host, plan, probe: {"service": plan.service.name})  # type: ignore[attr-defined]
        return run

    return make


@pytest.mark.parametrize("probe", [FULL, LATE, READ_ONLY, TAKEN, FAULTY])
def test_a_service_is_asked_where_an_apply_would_be_refused(connected: Callable[..., Any], probe: Probe) -> None:
    run = connected(AskingRun, probe, FOUR)
    assert run.found == [{"service": "chat"}]
    assert run.results["box"].errors == []


@pytest.mark.parametrize("kind", [AskingRun, TuningRun])
def test_a_host_of_no_known_kind_is_not_asked(connected: Callable[..., Any], kind: type[Run]) -> None:
    run = connected(kind, replace(SERVED, init="runit"))
    assert [error.message for error in run.results["box"].errors] == ["box: process 1 is runit, not systemd"]
    assert getattr(run, "found", []) == []


@pytest.mark.parametrize("probe", [FULL, LATE, READ_ONLY, TAKEN])
def test_a_host_tunes_where_an_apply_would_be_refused(connected: Callable[..., Any], probe: Probe) -> None:
    assert connected(TuningRun, probe).idle_host() == "box"


def test_a_host_of_another_rig_does_not_tune_for_the_one_that_was_declared(connected: Callable[..., Any]) -> None:
    run = connected(TuningRun, FAULTY, FOUR)
    assert run.idle_host() is None
    assert [error.message for error in run.results["box"].errors] == [NO_SUCH_CARD]
