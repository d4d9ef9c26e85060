"""Asking the services of hosts, and tuning on one: what speaks against an apply there says nothing about either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.facts.probe import Probe
from rigup.operations.builds.source import name_of
from rigup.operations.service import health
from rigup.operations.service.gpu_binding import bind
from rigup.operations.service.reply import Reply
from rigup.plan import BoundPlan, Build, Checkpoint, GpuMemory, Parallel, Plan
from rigup.run.runner import Run, load_provision
from rigup.run.service_run import ServiceRun, _asked, about, plan_digest
from rigup.service import Service
from rigup.tuning.run import TuningRun
from tests.unit.planner.asking import side_by_side
from tests.unit.preflight.test_checks import CARDS, FOUR, PLAN
from tests.unit.run.test_inspection import FULL, LATE, READ_ONLY, SERVED, TAKEN, turns_out_as

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
        run.context.plans = {"box": (plan,)}
        with run:
            run.connect(take_lease=kind is ServiceRun)
            if isinstance(run, ServiceRun):
                run.found = run.ask(None, lambda host, plan, member, probe: {"service": plan.service.name})  # type: ignore[attr-defined]
        return run

    return make


@pytest.mark.parametrize("probe", [FULL, LATE, READ_ONLY, TAKEN, FAULTY])
def test_a_service_is_asked_where_an_apply_would_be_refused(connected: Callable[..., Any], probe: Probe) -> None:
    run = connected(ServiceRun, probe, FOUR)
    assert run.found == [{"service": "chat"}]
    assert run.results["box"].errors == []


def test_what_runs_as_planned_on_some_of_the_cards_has_not_drifted() -> None:
    planned = Plan(
        host="box",
        group="boxes",
        verdict="ok",
        rig=FOUR.rig,
        service=Service(name="chat", model="m", gpus=(2, 3)),
        build=Build(engine="vllm", version="0.33.0", method="wheel"),
        checkpoint=Checkpoint(repo="a/b", quant="FP8", bytes=1),
        parallel=Parallel(tensor=2),
        memory=tuple(
            GpuMemory(gpu=gpu, capacity_mib=1, weights_mib=0, kv_cache_mib=0, overhead_mib=0, free_mib=1)
            for gpu in (2, 3)
        ),
        command=("bin/vllm", "serve"),
        environment={"CUDA_VISIBLE_DEVICES": "2,3"},
    )
    load_provision()
    from rigup.systemd.release import release_of

    probe = replace(SERVED, gpus=CARDS)
    (applied,) = bind((planned,), probe)
    assert applied.environment != planned.environment
    build = name_of(applied.build, probe.architecture, probe.os)
    probe = replace(probe, releases={"chat": release_of(applied, build).manifest})
    found = about("box", applied, applied, probe)
    assert (found["drift"], found["plan"]) == ([], plan_digest(planned))


def test_of_services_that_take_turns_each_is_asked_by_its_own_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    load_provision()
    from rigup.systemd.release import release_of

    turns = {"model": "SmolLM2-135M-Instruct", "swap": True}
    services = {"first": turns, "second": {**turns, "context": 512, "served_name": "tiny:8b"}}
    (whole,) = as_groups(taking_turns(side_by_side(services, [], 64)))
    (plan,) = bind((whole,), SERVED)
    probe = replace(SERVED, current={"first": "7"}, releases={"first": release_of(plan, "build").manifest})
    asked: list[dict[str, Any]] = []

    def answer(host: object, request: dict[str, Any]) -> Reply:
        asked.append(request)
        return Reply(state="answered", answer="P", tokens=1, seconds=1.0, tokens_per_second=1.0)

    monkeypatch.setattr(health, "_ask_once", answer)
    monkeypatch.setattr(health, "keep_answer", lambda host, service, reply: None)
    host = SimpleNamespace(name="box")
    for member in plan.members:
        found = _asked(host, plan, member, probe, lambda host, plan, member, probe: about("box", plan, member, probe))
        assert (found["service"], found["context"], found["release"]) == (member.service.name, member.context, "7")
        assert found["checkpoint"]["repo"] == member.checkpoint.repo
        assert found["plan"] == plan_digest(member) != plan_digest(whole)
    assert [(one["model"], one["unit"], one["swaps"], one["max_tokens"]) for one in asked] == [
        ("smollm2-135m-instruct", "rigup-first.service", False, 1),
        ("tiny:8b", "rigup-first.service", False, 1),
    ]


def test_services_are_asked_by_plans_with_their_cards(connected: Callable[..., Any]) -> None:
    run = connected(ServiceRun, SERVED, FOUR)
    run.results["box"].state = "pending"
    assert run.ask(None, lambda host, plan, member, probe: {"kind": type(plan)}) == [{"kind": BoundPlan}]


@pytest.mark.parametrize("kind", [ServiceRun, TuningRun])
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
