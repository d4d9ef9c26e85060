"""What must hold of every class of attention, whatever the rig: asked of models of the catalogue that have it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.attention import KINDS, class_of
from rigup.attention.attention_class import Storage
from rigup.catalogue.model import Model
from rigup.planner.memory.kv_cache import sequence_bytes
from rigup.service import EngineName
from tests.unit.attention.test_attention_class import EXAMPLES
from tests.unit.planner.asking import catalogue
from tests.unit.planner.test_decide_properties import equal, host_memory, plan_of, rig_of, with_more_memory

ENGINES: tuple[EngineName, ...] = ("vllm", "sglang", "llama.cpp")
rest = st.fixed_dictionaries(
    {},
    optional={
        "context": st.integers(1, 131_072),
        "concurrency": st.integers(1, 64),
        "engine": st.sampled_from(ENGINES),
        "kv_cache_type": st.sampled_from(["auto", "fp8", "q8_0", "bf16"]),
    },
)


def of_each_class() -> dict[str, str]:
    """By class, the smallest model of the catalogue with layers of it and a checkpoint."""
    known = sorted(catalogue().served, key=lambda model: model.parameters)
    known = [model for model in known if model.name in catalogue().checkpoints_by_model]
    found = {kind: next((m.name for m in known if kind in {a.kind for a in m.attention}), "") for kind in KINDS}
    return {kind: name for kind, name in found.items() if name}


MODELS = of_each_class()


def test_the_catalogue_has_a_model_of_nearly_every_class() -> None:
    assert set(KINDS) - MODELS.keys() <= {"chunked_local", "kimi_delta", "mamba"}


@pytest.mark.parametrize("kind", MODELS)
def test_the_parts_of_a_card_add_up_and_more_memory_never_refuses(kind: str) -> None:
    @given(equal, host_memory, rest, st.integers(1, 60_000))
    def holds(names: list[str], host: float | None, asked: dict[str, Any], more: int) -> None:
        rig, service = rig_of(names, host), {"model": MODELS[kind], **asked}
        plan = plan_of(rig, service)
        for row in plan.memory:
            parts = (row.weights_mib, row.kv_cache_mib, row.overhead_mib, row.free_mib)
            assert min(parts) >= 0 and sum(parts) == row.capacity_mib
        if plan.verdict == "ok":
            larger = plan_of(with_more_memory(rig, more), service)
            assert larger.verdict == "ok", larger.refusals

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_parallelism_never_makes_less_cache_together(kind: str) -> None:
    """Nor a longer sequence less than a shorter one."""
    template = next(model for model in catalogue().served if len(model.attention) == 1)

    @given(
        st.sampled_from(ENGINES),
        st.sampled_from(["bf16", "fp8", "q8_0"]),
        st.integers(1, 1_000_000),
        st.integers(1, 1_000_000),
        st.integers(1, 40),
    )
    def holds(engine: EngineName, cache: str, one: int, other: int, layers: int) -> None:
        model = _of_one_class(template, kind, layers)
        shorter, longer = sorted((one, other))
        together = [t * sequence_bytes(model, Storage(engine, cache, t), longer) for t in (1, 2, 4, 8)]
        assert together == sorted(together)
        assert sequence_bytes(model, Storage(engine, cache), shorter) <= together[0]

    holds()


def _of_one_class(template: Model, kind: str, layers: int) -> Model:
    entry = class_of(kind).model_validate({"layers": f"0-{layers - 1}" if layers > 1 else "0", **EXAMPLES[kind]})
    return template.model_copy(update={"layers": layers, "attention": (entry,)})
