"""Several services on one rig: what they cannot both have is refused, with both names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.decide import decide
from rigup.planner.decision import Decision
from rigup.planner.inputs.locked import planning_request
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.planner.multinode import conflicts as module
from rigup.planner.multinode.conflicts import Occupied
from tests.unit.planner.asking import FILE, catalogue, side_by_side
from tests.unit.planner.asking import decision as one_decision

OF_HOST = "MiB of host memory"


def plans(
    services: dict[str, dict[str, Any]], gpus: object = "4x RTX 3090", memory: float | None = 64
) -> tuple[Plan, ...]:
    small = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
    described = {name: {**small, "port": 8000 + n, **said} for n, (name, said) in enumerate(services.items())}
    return side_by_side(described, gpus, memory)


def test_two_pairs() -> None:
    assert [plan.verdict for plan in plans({"a": {"gpus": [0, 1]}, "b": {"gpus": [2, 3]}})] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("services", "rule", "message", "hint"),
    [
        (
            {"a": {"gpus": [0, 1, 2]}, "b": {"gpus": [1, 2]}},
            "gpu-shared",
            "services a and b both use GPUs 1, 2",
            "give each service its own GPUs: services.a.gpus and services.b.gpus",
        ),
        (
            {"a": {}, "b": {}},
            "gpu-shared",
            "services a and b both use GPU 0",
            "give each service its own GPUs: services.a.gpus and services.b.gpus",
        ),
        (
            {"a": {"gpus": ["GPU-x", "GPU-y"]}, "b": {"gpus": ["GPU-y"]}},
            "gpu-shared",
            "services a and b both use GPU GPU-y",
            "give each service its own GPUs: services.a.gpus and services.b.gpus",
        ),
        (
            {"a": {"gpus": ["GPU-x", "GPU-y"]}, "b": {"gpus": [0, 1, 2]}},
            "gpu-count",
            "b needs 3 GPUs, but only 2 of 4 are left",
            "give it fewer GPUs (services.b.gpus) or another rig",
        ),
    ],
    ids=["index", "all", "uuid", "sum"],
)
def test_gpus_are_not_shared(services: dict[str, dict[str, Any]], rule: str, message: str, hint: str) -> None:
    first, second = plans(services)
    assert (first.verdict, second.verdict) == ("ok", "refused")
    (finding,) = second.refusals
    assert (finding.rule, finding.message, finding.hint) == (rule, message, hint)


def test_host_memory_is_summed() -> None:
    """Beside the 512 MiB that the system keeps at least."""
    bare = {"flags": {"--cache-ram": 0}}
    alone = plans({"a": bare}, [], 64)[0].host_memory_mib
    assert alone is not None and 0 < alone < 1200
    enough, short = (2 * alone + 512) / 1024 + 0.01, (2 * alone + 512) / 1024 - 0.1
    assert [plan.verdict for plan in plans({"a": bare, "b": bare}, [], enough)] == ["ok", "ok"]
    first, second = plans({"a": bare, "b": bare}, [], short)
    assert first.verdict == "ok"
    (finding,) = second.refusals
    assert finding.rule == "host-memory"
    assert finding.message.startswith(f"b needs {alone:,} {OF_HOST}, but a leaves only ")
    assert finding.message.endswith(f" MiB of the rig's {short:g} GiB")


@pytest.mark.parametrize(
    ("memory", "whose"),
    [(4, "the rig's 4 GiB"), (None, "the 4,096 MiB that rigup assumes")],
)
def test_what_a_machine_without_gpus_is_taken_to_have_is_shared_too(memory: float | None, whose: str) -> None:
    many = {"concurrency": 8}
    first, second = plans({"a": many, "b": many}, [], memory)
    assert first.verdict == "ok" and first.host_memory_mib is not None
    (finding,) = second.refusals
    left = 4096 - 512 - first.host_memory_mib
    needed = f"{first.host_memory_mib:,} {OF_HOST}"
    assert finding.message == f"b needs {needed}, but a leaves only {left:,} MiB of {whose}"


def test_a_refused_plan_takes_nothing_from_the_others() -> None:
    made = plans({"a": {"gpus": [0]}, "b": {"gpus": [0, 1]}, "c": {"gpus": [1]}})
    assert [plan.verdict for plan in made] == ["ok", "refused", "ok"]


def test_what_one_host_of_several_has_too_little_for_is_refused_on_all() -> None:
    """The hosts of a service need not take the same memory."""
    small = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp", "flags": {"--cache-ram": 0}}
    described = {name: {**small, "port": 8000 + n} for n, name in enumerate("ab")}
    rig = read_rig({"gpus": [], "host_memory_gib": 8, "hosts_per_service": 2}, FILE, catalogue())
    first, second = (
        decide(planning_request(rig, service, catalogue(), Lock())) for service in read_services(described, FILE, rig)
    )
    assert isinstance(first, Decision) and isinstance(second, Decision)
    occupied = Occupied()
    occupied.add(first)
    assert occupied.conflicts(second) == ()
    hungry = second._replace(candidate=replace(second.candidate, peer_memory_mib=65_536))
    (finding,) = occupied.conflicts(hungry)
    assert finding.message.startswith(f"b needs 65,536 {OF_HOST}")


def test_services_that_take_turns_take_work_linear_in_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    read = module._gpus
    monkeypatch.setattr(module, "_gpus", lambda *of: looked.append(of) or read(*of))
    monkeypatch.setattr(Decision, "__eq__", lambda *_: pytest.fail("compares whole decisions"))
    first = one_decision([], {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}, 64)
    counts = []
    for number in (20, 40):
        occupied = Occupied()
        looked.clear()
        for index in range(number):
            candidate = first.candidate
            service = candidate.service.model_copy(
                update={"name": f"s{index}", "served_name": f"s{index}", "swap": True}
            )
            decision = first._replace(candidate=replace(candidate, service=service))
            assert occupied.conflicts(decision) == ()
            occupied.add(decision)
        counts.append(len(looked))
    assert counts[1] <= 2 * counts[0]


def test_of_those_that_take_turns_the_largest_counts_beside_others() -> None:
    said = {
        name: {"swap": True, "port": 8000, "served_name": name, "flags": {"--cache-ram": mib}}
        for name, mib in {"a": 0, "b": 30_000, "c": 0}.items()
    }
    made = plans({**said, "d": {"flags": {"--cache-ram": 40_000}}}, [], 64)
    assert [plan.verdict for plan in made] == ["ok", "ok", "ok", "refused"]
    assert f"{OF_HOST}, but b leaves only " in made[3].refusals[0].message
