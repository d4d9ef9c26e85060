"""Plans of GGUF files against what llama.cpp's own code reserves for them on simulated cards (docs/judges.md)."""

from __future__ import annotations

import pytest

from rigup.catalogue.runtimes import runtimes
from rigup.plan import GpuMemory
from rigup.units import MIB
from tests.oracle.ask import ANSWERS, read_answers
from tests.oracle.differences import BUFFERS, FILES
from tests.oracle.sizes import RELEASE, Sizing, sizings

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("the planner", "the data")]

ENOUGH, LITTLE = 100, "plans have changed: ask again (docs/judges.md)"
LEAST_MIB, PART = 2.0, 0.002
"""By how much a part may differ: the larger of the two."""
MORE_MIB, MORE = 32.0, 0.02
"""By how much the planned buffers of a card may be more than what is reserved: the larger of the two."""
FEW = 0.085
"""The part of the cards that may differ more, for a reason that is listed."""

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


def buffers_mib(sizing: Sizing, gpu: GpuMemory) -> float:
    """Of a plan, without what the process takes."""
    figures = runtimes()["llama.cpp"]
    memory = max(row.capacity_mib for row in sizing.plan.memory) * MIB
    process = figures.process_bytes(RELEASE, frozenset(), experts=False, ranks=1)
    return gpu.overhead_mib - (figures.reserve_bytes(memory) + process) / MIB


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


def test_buffers_are_those_of_the_plans_and_never_counted_too_low(answered: list[tuple[Sizing, list[Card]]]) -> None:
    """What a step reads is reserved in the host's memory where a card shares that, which is not compared."""
    rows = [
        (f"{sizing.name}, GPU {gpu.gpu}", buffers_mib(sizing, gpu), used)
        for sizing, cards in answered
        for gpu, (_, _, used) in zip(sizing.plan.memory, cards, strict=True)
        if not sizing.plan.rig.gpus[gpu.gpu].unified_memory
    ]
    assert [row for row in rows if row[1] < row[2] - LEAST_MIB] == []
    high = [row for row in rows if row[1] > row[2] + max(MORE_MIB, MORE * row[2])]
    assert [row for row in high if not row[0].startswith(tuple(BUFFERS))] == []
    assert len(high) <= FEW * len(rows)
