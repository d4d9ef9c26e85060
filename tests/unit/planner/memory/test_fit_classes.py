"""What must hold for every class of attention, on every engine, whatever the card."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rigup.attention import KINDS
from rigup.catalogue.model import Model
from rigup.plan import Parallel
from rigup.planner.candidate import Candidate
from rigup.planner.memory.fit import Shortfall, place_in_memory
from rigup.planner.memory.sglang_caches import StatePool, sglang_pool
from rigup.tensor_bytes import TensorBytes
from rigup.units import GIB
from tests.measured.rows import candidate, rows
from tests.unit.attention.test_attention_class import EXAMPLES

ENGINES = ("vllm", "sglang", "llama.cpp")
ROW = next(row for row in rows() if row.engine == "vllm")
LAYERS = 24
TENSORS = TensorBytes.model_validate(
    {
        "embedding": GIB // 2,
        "head": GIB // 2,
        "layers": [
            {"layers": "0-1", "attention": 40 * 2**20, "replicated": 2**20, "dense": 300 * 2**20},
            {
                "layers": f"2-{LAYERS - 1}",
                "attention": 30 * 2**20,
                "key_value": 4 * 2**20,
                "router": 2**20,
                "experts": 700 * 2**20,
                "shared_experts": 20 * 2**20,
            },
        ],
    }
)
"""17 GiB, layers of two kinds."""


def model(kind: str, share: int) -> Model:
    """Every `share`-th layer keeps every token, the others are of the kind; one alone where share is 1."""
    own = [number for number in range(LAYERS) if share == 1 or number % share]
    rest = [number for number in range(LAYERS) if number not in own]
    entries: list[dict[str, Any]] = [{**EXAMPLES[kind], "kind": kind, "layers": tuple(own)}]
    if rest:
        entries.append({**EXAMPLES["full"], "kind": "full", "layers": tuple(rest)})
    return Model.model_validate(
        {
            "name": f"{kind} {share}",
            "architectures": ("AnyForCausalLM",),
            "layers": LAYERS,
            "hidden": 4096,
            "attention": entries,
            "vocab": 100_000,
            "context": 1_048_576,
            "experts": 64,
            "experts_per_token": 4,
            "expert_intermediate": 1024,
            "parameters": 10**10,
            "active_parameters": 10**9,
        }
    )


def asked(kind: str, share: int, engine: str, gpus: int, memory_mib: int, context: int, **sizes: int) -> Candidate:
    base = candidate(next(row for row in rows() if row.engine == engine))
    card = base.rig.gpus[0].model_copy(update={"memory_mib": memory_mib})
    rig = base.rig.model_copy(update={"gpus": (card,) * gpus})
    entry = base.checkpoint.model_copy(update={"repo": "any/any", "tensors": TENSORS, "bytes": TENSORS.total})
    return replace(
        base,
        rig=rig,
        service=base.service.model_copy(update={"flags": {}}),
        gpu_indices=tuple(range(gpus)),
        model=model(kind, share),
        checkpoint=entry,
        parallel=Parallel(**sizes),
        context=context,
        sequences=4,
        batched_tokens=2048,
        memory_fraction=0.0 if engine == "llama.cpp" else 0.9,
        kv_cache_type="f16" if engine == "llama.cpp" else "bf16",
    )


sizes = st.integers(4_000, 200_000)
contexts = st.integers(1, 512).map(lambda count: count * 2048)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
@given(st.sampled_from((1, 4)), sizes, st.integers(0, 100_000), contexts)
@example(4, 53_508, 5, 2048)
def test_more_memory_never_refuses(kind: str, engine: str, share: int, size: int, more: int, context: int) -> None:
    less = place_in_memory(asked(kind, share, engine, 1, size, context))
    if isinstance(less, Shortfall):
        assert less.missing_mib > 0
        return
    larger = place_in_memory(asked(kind, share, engine, 1, size + more, context))
    state = tokens_of_a_state(less) if engine == "sglang" else 0
    if isinstance(larger, Shortfall):
        assert less.kv_tokens < context + state
    else:
        assert larger.kv_tokens >= less.kv_tokens - state


def tokens_of_a_state(placed: Candidate) -> int:
    """Tokens in the room of one state: SGLang keeps whole states, so that one more can leave fewer tokens."""
    pool = sglang_pool(placed)
    if not isinstance(pool, StatePool) or not sum(pool.layers):
        return 0
    return math.ceil(sum(pool.states) / sum(pool.layers))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
@given(st.sampled_from((1, 4)), sizes, contexts, st.sampled_from((1, 2, 4)))
def test_the_parts_add_up(kind: str, engine: str, share: int, size: int, context: int, gpus: int) -> None:
    parallel = {} if engine == "llama.cpp" else {"tensor": 1, "pipeline": gpus}
    placed = place_in_memory(asked(kind, share, engine, gpus, size, context, **parallel))
    if isinstance(placed, Shortfall):
        return
    for row in placed.memory:
        assert row.weights_mib + row.kv_cache_mib + row.overhead_mib + row.free_mib == row.capacity_mib
        assert row.free_mib >= 0
    held = sum(use.weights for use in placed.usage)
    host = TENSORS.embedding if engine == "llama.cpp" else 0
    element = {"vllm": 2, "sglang": 4, "llama.cpp": 0}[engine]
    tables = dict(entry.position_table(1_048_576, element) for entry in model(kind, share).attention if element)
    assert held + host == pytest.approx(TENSORS.total + gpus * sum(tables.values()), rel=0.001)
    assert placed.kv_tokens >= context


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("kind", KINDS)
@given(st.sampled_from((1, 4)), sizes, contexts)
def test_tensor_parallelism_never_makes_less_cache_together(
    kind: str, engine: str, share: int, size: int, context: int
) -> None:
    alone = place_in_memory(asked(kind, share, engine, 1, size, context))
    if isinstance(alone, Shortfall):
        return
    two = place_in_memory(asked(kind, share, engine, 2, size, context, tensor=2))
    assert not isinstance(two, Shortfall)
    assert two.kv_tokens >= alone.kv_tokens
