"""Plans of GGUF files against what llama.cpp's own code reserves for them on simulated cards (docs/judges.md)."""

from __future__ import annotations

import pytest

from rigup.planner.memory.overhead import LLAMA_CPP_RUNTIME
from rigup.units import MIB
from tests.oracle.ask import ANSWERS, read_answers
from tests.oracle.differences import BUFFERS, FILES
from tests.oracle.sizes import RELEASE, Sizing, sizings

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("the planner", "the data")]

ENOUGH, LITTLE = 100, "plans have changed: ask again (docs/judges.md)"
LEAST_MIB, PART = 2.0, 0.002
"""By how much a part may differ: the larger of the two."""
RUNTIME_MIB = LLAMA_CPP_RUNTIME / MIB
HIGHEST, SMALL_MIB = 2.5, 1024
"""How many times what is reserved the planned buffers of a card are at most, unless they are small.

What a step reads is reserved in the host's memory where a card shares that, which is not compared.
"""

Card = tuple[float, float, float]


@pytest.fixture(scope="module")
def answered() -> list[tuple[Sizing, list[Card]]]:
    """The plans that are still those that were asked about, with MiB of model, context and buffers of each card."""
    answers = read_answers(ANSWERS / f"llama.cpp-{RELEASE}.jsonl")
    found = []
    for sizing in sizings(answers):
        row = answers[sizing.name]
        if row["asked"] == sizing.digest and "devices" in row:
            devices = [row["devices"].get(f"CUDA{card}", (0, 0, 0)) for card in range(len(sizing.plan.memory))]
            found.append((sizing, [(model / MIB, kept / MIB, used / MIB) for model, kept, used in devices]))
    assert len(found) >= ENOUGH, LITTLE
    return found


def differs(planned: float, said: float) -> bool:
    return abs(planned - said) > max(LEAST_MIB, PART * said)


def test_caches_are_those_of_the_plans(answered: list[tuple[Sizing, list[Card]]]) -> None:
    off = {
        (sizing.name, gpu.gpu): (gpu.kv_cache_mib, context)
        for sizing, cards in answered
        for gpu, (_, context, _) in zip(sizing.plan.memory, cards, strict=True)
        if differs(gpu.kv_cache_mib, context)
    }
    assert off == {}


def test_weights_are_those_of_the_plans(answered: list[tuple[Sizing, list[Card]]]) -> None:
    off = {
        (sizing.name, gpu.gpu): (gpu.weights_mib, model)
        for sizing, cards in answered
        for gpu, (model, _, _) in zip(sizing.plan.memory, cards, strict=True)
        if differs(gpu.weights_mib, model) and not sizing.name.startswith(tuple(FILES))
    }
    assert off == {}


def test_buffers_are_never_counted_too_low(answered: list[tuple[Sizing, list[Card]]]) -> None:
    rows = [
        (sizing, gpu.gpu, gpu.overhead_mib - RUNTIME_MIB, used)
        for sizing, cards in answered
        for gpu, (_, _, used) in zip(sizing.plan.memory, cards, strict=True)
    ]
    assert [(row[0].name, *row[1:]) for row in rows if row[2] < row[3] - 1] == []
    high = [row for row in rows if row[2] > max(SMALL_MIB, HIGHEST * row[3])]
    own = [row for row in high if not row[0].plan.rig.gpus[row[1]].unified_memory]
    assert [(row[0].name, *row[1:]) for row in own if not row[0].name.startswith(tuple(BUFFERS))] == []
