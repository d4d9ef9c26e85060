"""Which cards the services of a host get: as declared at first, the same ones for as long as they are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.facts.probe import Gpu, Nvidia, Probe
from rigup.lock import Lock
from rigup.operations.gpu_binding import bound, strangers, waits
from rigup.plan import Plan
from rigup.planner.reading import read_rig, read_services
from rigup.planner.together import together
from rigup.render.plan_service import plan_service
from roles.service import release_of
from tests.unit.planner.asking import FILE, catalogue

SMALL = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
CARD = "NVIDIA GeForce RTX 3090"


def plans(services: dict[str, dict[str, Any]], gpus: object = "4x RTX 3090") -> tuple[Plan, ...]:
    rig = read_rig({"gpus": gpus, "host_memory_gib": 64}, FILE, catalogue())
    described = {name: {**SMALL, "port": 8000 + n, **said} for n, (name, said) in enumerate(services.items())}
    read = read_services(described, FILE, catalogue(), rig)
    return together(tuple(plan_service("gpu1", "group", rig, one, catalogue(), Lock()) for one in read))


def host(*uuids: str, names: tuple[str, ...] = ()) -> Probe:
    cards = tuple(
        Gpu((names or (CARD,) * len(uuids))[index], index=index, uuid=uuid) for index, uuid in enumerate(uuids)
    )
    return Probe(gpus=cards, nvidia=Nvidia(loaded="580.178.04"))


def applied(probe: Probe, made: tuple[Plan, ...]) -> Probe:
    """The host once these plans were applied to it."""
    return replace(probe, releases={plan.service.name: release_of(plan, "build").manifest for plan in made})


def cards(made: tuple[Plan, ...]) -> list[list[str]]:
    return [list(plan.gpu_uuids.values()) for plan in made]


PAIRS = {"a": {"gpus": [0, 1]}, "b": {"gpus": [2, 3]}}


def test_indices_are_the_cards_as_they_are_found() -> None:
    made = bound(plans(PAIRS), host("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    assert cards(made) == [["GPU-a", "GPU-b"], ["GPU-c", "GPU-d"]]
    assert made[1].environment["CUDA_VISIBLE_DEVICES"] == "GPU-c,GPU-d"
    assert release_of(made[1], "build").manifest["gpus"] == [[2, "GPU-c"], [3, "GPU-d"]]
    assert "CUDA_VISIBLE_DEVICES=GPU-c,GPU-d" in release_of(made[1], "build").unit


def test_cards_that_were_renumbered_stay_with_their_services() -> None:
    probe = host("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    made = bound(plans(PAIRS), probe)
    after = applied(host("GPU-c", "GPU-a", "GPU-d", "GPU-b"), made)
    assert bound(plans(PAIRS), after) == made


def test_a_service_that_joins_gets_cards_that_nobody_has() -> None:
    first = bound(plans({"a": {"gpus": [0, 1]}}), host("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    after = applied(host("GPU-c", "GPU-d", "GPU-a", "GPU-b"), first)
    assert cards(bound(plans(PAIRS), after)) == [["GPU-a", "GPU-b"], ["GPU-c", "GPU-d"]]


def test_other_indices_are_other_cards_and_a_card_that_is_gone_is_replaced() -> None:
    probe = host("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    before = applied(probe, bound(plans({"a": {"gpus": [0, 1]}}), probe))
    assert cards(bound(plans({"a": {"gpus": [2, 3]}}), before)) == [["GPU-c", "GPU-d"]]
    exchanged = replace(before, gpus=host("GPU-a", "GPU-new", "GPU-c", "GPU-d").gpus)
    assert cards(bound(plans({"a": {"gpus": [0, 1]}}), exchanged)) == [["GPU-a", "GPU-new"]]


def test_the_order_of_a_mixed_rig_is_the_declared_one() -> None:
    mixed = ["RTX PRO 6000 Blackwell Workstation Edition", "RTX 3090"]
    (plan,) = plans({"a": {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 4096, "gpus": [0, 1]}}, mixed)
    found = host("GPU-small", "GPU-big", names=(CARD, plan.rig.gpus[0].name))
    assert cards(bound((plan,), found)) == [["GPU-big", "GPU-small"]]


def test_a_service_of_all_equal_cards_names_none_and_waits_for_none() -> None:
    (plan,) = plans({"a": {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 4096}})
    assert len(plan.memory) == 4
    assert bound((plan,), host("GPU-a", "GPU-b", "GPU-c", "GPU-d")) == (plan,)
    assert not waits((plan,))


def test_without_a_driver_the_cards_are_told_later_unless_a_release_has_them() -> None:
    assert waits(bound(plans(PAIRS), Probe()))
    made = bound(plans(PAIRS), host("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    assert bound(plans(PAIRS), applied(Probe(), made)) == made


def test_uuids_are_taken_as_they_are() -> None:
    named = {"a": {"gpus": ["GPU-d", "GPU-b"]}, "b": {"gpus": [0, 1]}}
    probe = host("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    made = bound(plans(named), probe)
    assert cards(made) == [["GPU-d", "GPU-b"], ["GPU-a", "GPU-c"]]
    assert list(strangers(plans(named), probe)) == []
    ((plan, uuid),) = strangers(plans({"a": {"gpus": ["GPU-x"]}}), probe)
    assert (plan.service.name, uuid) == ("a", "GPU-x")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_counts_looks_its_cards_up_when_it_starts(engine: str) -> None:
    services = {"a": {"model": "MiniMax-M2.5", "engine": engine, "gpus": [2, 3], "context": 4096}}
    (plan,) = plans(services, "4x RTX PRO 6000 Blackwell Workstation Edition")
    assert plan.verdict == "ok", plan.refusals
    name = plan.rig.gpus[0].name
    (made,) = bound((plan,), host("GPU-a", "GPU-b", "GPU-c", "GPU-d", names=(name,) * 4))
    text = release_of(made, "build").unit
    assert "ExecStart=/bin/sh -c " in text and "nvidia-smi --id=" in text
    assert "nvidia-smi" not in release_of(plan, "build").unit
