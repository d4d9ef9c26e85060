"""The oracle for memory against published rows: caches exact, weights within 1.5 %, tokens within 3 %, or the cause."""

from __future__ import annotations

import pytest

from rigup.planner.memory.llama_cpp_caches import layer_cells
from rigup.planner.memory.loading import drafts
from rigup.planner.memory.sglang_caches import StatePool, sglang_pool
from rigup.planner.memory.tensor_engines import place_tensor_engine
from rigup.planner.memory.vllm_caches import BlockPool, vllm_pool
from rigup.units import GIB, MIB
from tests.measured.rows import Row, candidate, rows

WEIGHTS, TOKENS = 0.015, 0.03
ROWS = {row.name: row for row in rows()}

# What a row says otherwise, and why. Nothing else may be off.
BYTES_EXCEPTIONS = {
    "ik-377-nemotron-ultra": "K in q8_0 and V in q4_0: rigup has one type for both",
    "llama-ik394-dsv3": "b5331 stored V for latent attention, which b11434 does not",
    "rtx6k-glm51-dcp8-mtp1": "decode context parallelism spreads the cache over ranks; rigup does not plan it",
}
"""Bytes of cache a token."""
TOKENS_EXCEPTIONS = {
    "rtx6k-glm51-dcp8-mtp1": "decode context parallelism spreads the cache over ranks; rigup does not plan it",
}
"""Tokens, and requests of the whole context, that the measured bytes of cache hold."""
WEIGHTS_EXCEPTIONS = {
    "vdb-d5245609": "an AMD card, whose builds of vLLM hold other copies; rigup plans none",
    "file-sglang-q38-27b": "the difference of free memory: 0.9 GiB more than the tensors, as much as the MTP layer has",
    "vdb-2fec82ef": "vLLM 0.20 holds experts of width 1,856 as 1,920, 0.13 does not (vdb-afb821c3): 0.94 GiB",
    "vdb-4f09e21f": "3.1 GiB more than FP8 throughout; the config lists no layers that are left in BF16",
}
"""Weights of one GPU."""


def layers_held(row: Row) -> tuple[int, int]:
    planned = candidate(row)
    drafted = sum(len(entry.layers) for entry in planned.model.mtp_attention) if drafts(planned) else 0
    return 0, planned.model.layers + drafted


def bytes_per_token(row: Row) -> float:
    """As the row's source counts: all GPUs together of llama.cpp, else one; a hybrid's blocks by the tokens of one."""
    planned = candidate(row)
    if planned.engine.name == "llama.cpp":
        states = (row.measured("recurrent_mib") or 0) * MIB
        return (sum(layer_cells(planned)) - states) / (planned.context * planned.sequences)
    if planned.engine.name == "sglang":
        pool = sglang_pool(planned, drafting=False)  # the log tells of the draft's cache by itself
        if isinstance(pool, StatePool):
            return sum(pool.layers)
        return sum(pool.layer_bytes(1))
    blocks = vllm_pool(planned.model, planned.storage, planned.batched_tokens, drafts(planned))
    if isinstance(blocks, BlockPool):
        if planned.release.at_least("0.21.0"):
            return blocks.needed_bytes(planned.context, *layers_held(row)) / planned.context
        least = min(group.block for group in blocks.groups if group.block)
        return len(blocks.groups) * max(len(group.numbers) for group in blocks.groups) * blocks.page / least
    return sum(blocks.layer_bytes(1))


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.data.get("bytes_per_token")])
def test_bytes_of_a_token_are_exact(name: str) -> None:
    row = ROWS[name]
    exact = bytes_per_token(row) == pytest.approx(row.data["bytes_per_token"], rel=1e-6)
    assert exact != (name in BYTES_EXCEPTIONS), bytes_per_token(row)


def has_tokens(row: Row) -> bool:
    return bool(row.kv_gib and row.measured("kv_tokens")) and row.engine != "llama.cpp"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if has_tokens(row)])
def test_tokens_that_the_measured_cache_holds(name: str) -> None:
    row = ROWS[name]
    planned = candidate(row)
    room = (row.kv_gib or 0) * GIB
    pool = vllm_pool(planned.model, planned.storage, planned.batched_tokens, drafts(planned))
    if planned.engine.name == "sglang":
        tokens = room / bytes_per_token(row)
    elif isinstance(pool, BlockPool) and not planned.release.at_least("0.21.0"):
        least = min(group.block for group in pool.groups if group.block)
        tokens = pool.blocks(room, *layers_held(row)) // len(pool.groups) * least
    else:
        tokens = pool.tokens(room, *layers_held(row), planned.context)
    off = tokens / (row.measured("kv_tokens") or 0) - 1
    assert (abs(off) <= TOKENS) != (name in TOKENS_EXCEPTIONS), f"{off:+.2%}"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.measured("max_concurrency")])
def test_requests_that_the_measured_cache_holds(name: str) -> None:
    row = ROWS[name]
    planned = candidate(row)
    pool = vllm_pool(planned.model, planned.storage, planned.batched_tokens, drafts(planned))
    requests = (row.kv_gib or 0) * GIB / pool.needed_bytes(planned.context, *layers_held(row))
    off = requests / (row.measured("max_concurrency") or 0) - 1
    assert (abs(off) <= TOKENS) != (name in TOKENS_EXCEPTIONS), f"{off:+.2%}"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.measured("weights_gib_per_gpu")])
def test_weights(name: str) -> None:
    row = ROWS[name]
    planned = candidate(row)
    placed = place_tensor_engine(planned, [float(10**13)] * len(planned.gpu_indices))
    off = placed.gpus[0].weights / GIB / row.measured("weights_gib_per_gpu") - 1
    assert (abs(off) <= WEIGHTS) != (name in WEIGHTS_EXCEPTIONS), f"{off:+.2%}"
