"""vLLM and SGLang: shards of every layer on each tensor-parallel rank, runs of layers on each pipeline stage.

Sources: vllm/v1/worker/gpu_worker.py (0.33.0): the KV cache is what --gpu-memory-utilization leaves after weights
and the profiled peak, and every stage gets as many tokens as the poorest one has. SGLang 0.5.23
(distributed/bootstrap.py: measure_pre_model_load_memory; mem_cache/kv_cache_configurator.py: _profile_available_bytes):
--mem-fraction-static is the part of what is free before loading that weights and KV cache may take. What is used by
then, NCCL and the CUDA context, nobody has published; the whole of the engine's runtime is taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rigup.planner.candidate import Candidate, GpuUsage, expert_ranks, stage_ranks
from rigup.planner.memory.kv_cache import CachePool
from rigup.planner.memory.loading import (
    block_tokens,
    draft_attention,
    draft_of,
    draft_weights,
    encoder_bytes,
    growth_of,
    in_flight_tokens,
    state_blocks,
    tower_bytes,
)
from rigup.planner.memory.overhead import TENSOR_ENGINE_HOST, Runtime, request_table, sampler, tensor_engine_activations
from rigup.planner.memory.placement import fits, partition
from rigup.planner.memory.sglang_caches import sglang_pool
from rigup.planner.memory.usage import Placement
from rigup.planner.memory.vllm_caches import BLOCK_TOKENS, BlockPool, vllm_pool
from rigup.planner.memory.weights import rank_layers, rank_totals, weights_of
from rigup.units import GIB


@dataclass(frozen=True, slots=True)
class _RankBytes:
    """Bytes on one rank: of each layer's weights, also added up, and of each stage beside layers; and the caches."""

    layers: tuple[float, ...]
    totals: tuple[float, ...]
    pool: CachePool
    extras: tuple[float, ...]
    overheads: tuple[float, ...]
    runtime: Runtime
    draft_layers: int

    def weights(self, first: int, end: int) -> float:
        """The layers from `first` on and before `end`."""
        return self.totals[end] - self.totals[first]


def place_tensor_engine(candidate: Candidate, rooms: Sequence[float]) -> Placement:
    """Places the model on the ranks, in the order of `stage_ranks` in both engines."""
    parallel, context = candidate.parallel, candidate.context
    shape = _shape(candidate)
    fraction = _fraction(candidate, shape, min(rooms))
    offload = candidate.cpu_offload_gib * GIB
    budgets = _budgets(candidate, rooms, shape, fraction)
    stages = [budget - extra + offload for budget, extra in zip(budgets, shape.extras, strict=True)]
    counts = _counts(candidate, shape, stages)
    if counts is None:
        return _not_placed(candidate, shape, stages)
    runs = list(_runs(counts, shape.draft_layers))
    held = [shape.weights(first, min(end, candidate.model.layers)) for first, end in runs]
    # At most the whole budget: weights that are not there cannot be offloaded.
    left = [min(budget, stage - taken) for budget, stage, taken in zip(budgets, stages, held, strict=True)]
    if candidate.engine.name == "sglang":  # each rank goes by what the fullest of all has free
        left = [min(left)] * len(left)
    tokens = min(shape.pool.tokens(max(0.0, rest), *run, context) for rest, run in zip(left, runs, strict=True))
    spare = min(rest - shape.pool.needed_bytes(context, *run) for rest, run in zip(left, runs, strict=True))
    if tokens < context or min(left) < 0:
        return _lacking(candidate, shape, left, runs)
    host = len(rooms) // candidate.hosts * (TENSOR_ENGINE_HOST + offload)
    return Placement(
        gpus=_usage(candidate, shape, runs, left, tokens, rooms),
        host=host,
        peer=host if candidate.hosts > 1 else 0.0,
        kv_tokens=tokens * parallel.data,
        cache_spare=spare,
        most_sequences=_most_sequences(candidate, shape.pool, left, runs),
        memory_fraction=fraction,
        pipeline_partition=counts if parallel.pipeline > 1 else (),
    )


def _most_sequences(
    candidate: Candidate, pool: CachePool, left: Sequence[float], runs: Sequence[tuple[int, int]]
) -> int:
    """The blocks for states of a hybrid model in vLLM; 0 for no bound.

    With more sequences at once vLLM does not start, unless it runs without CUDA graphs: vLLM 0.33.0, "max_num_seqs
    (1024) exceeds available ... blocks (157)", and three variants of Qwen3.8-27B (vllm-project/recipes#831).
    """
    if candidate.eager or not isinstance(pool, BlockPool) or not pool.has_states:
        return 0
    return min(pool.blocks(max(0.0, rest), *run) for rest, run in zip(left, runs, strict=True))


def _runs(counts: Sequence[int], draft_layers: int) -> Iterator[tuple[int, int]]:
    """The first layer of each stage and the one behind its last; built-in draft layers are on the last stage."""
    first = 0
    for count in counts[:-1]:
        yield first, first + count
        first += count
    yield first, first + counts[-1] + draft_layers


def _shape(candidate: Candidate) -> _RankBytes:
    model, parallel = candidate.model, candidate.parallel
    release, architecture = candidate.release, candidate.architecture
    weights = weights_of(candidate.checkpoint, model)
    tensor, stages, drafts = parallel.tensor, parallel.pipeline, draft_attention(candidate)
    sharing = expert_ranks(candidate.engine.name, tensor, parallel.data)
    extras = [0.0] * stages
    cut = tensor if release.cuts_embeddings(architecture) else 1
    repeated = release.repeats_embeddings(architecture)
    for stage in range(stages if repeated else 1):
        extras[stage] += weights.embedding / cut
    extras = [extra + tower_bytes(candidate, stage) for stage, extra in enumerate(extras)]
    head = (weights.head or (weights.embedding if stages > 1 and not repeated else 0.0)) / tensor
    every = release.repeats_heads(architecture)
    extras = [extra + head * (every or stage == stages - 1) for stage, extra in enumerate(extras)]
    extras[-1] += draft_weights(candidate)
    if positions := release.positions(architecture):
        rows = positions.factor * model.context
        tables = dict(entry.position_table(rows, positions.element_bytes) for entry in model.attention)
        extras = [extra + sum(tables.values()) for extra in extras]
    activations = tensor_engine_activations(model, candidate.expert_shards, tensor, candidate.batched_tokens)
    table = request_table(candidate.sequences, candidate.context) if candidate.engine.name == "sglang" else 0.0
    steps = [activations + table] * stages
    sampling = sampler(candidate.engine.name, candidate.version, model, candidate.sequences)
    # vLLM measures the peak of a start profile that samples after the model has run.
    steps[-1] = max(activations, sampling) if candidate.engine.name == "vllm" else steps[-1] + sampling
    steps[0] += encoder_bytes(candidate)
    runtime = candidate.runtime
    process = runtime.total
    overheads = [process + step for step in steps]
    if candidate.engine.name == "vllm":
        flying, states, block = in_flight_tokens(candidate), state_blocks(candidate), block_tokens(candidate)
        pool = vllm_pool(model, candidate.storage, flying, drafts, states, block)
    else:
        pool = sglang_pool(candidate, draft_of(candidate), drafts)
    growth = growth_of(candidate)
    layers = rank_layers(candidate.checkpoint, model, tensor, sharing, growth)
    totals = rank_totals(candidate.checkpoint, model, tensor, sharing, growth)
    drafted = sum(len(entry.layers) for entry in drafts)
    return _RankBytes(layers, totals, pool, tuple(extras), tuple(overheads), runtime, drafted)


def _fraction(candidate: Candidate, shape: _RankBytes, room: float) -> float:
    """The part of the GPUs in use. SGLang's does not cover the overhead, so that there must be room beside it.

    How much comes before SGLang measures is known of two logs only: here all of it is counted as coming after.
    """
    fraction = candidate.memory_fraction
    if candidate.engine.name == "vllm" or candidate.fraction_given:
        return fraction
    return max(0.01, min(fraction, int(100 * (1 - max(shape.overheads) / room)) / 100))


def _budgets(candidate: Candidate, rooms: Sequence[float], shape: _RankBytes, fraction: float) -> list[float]:
    """Bytes for weights and KV cache on the poorest GPU of each stage.

    SGLang leaves the same on each GPU, a part of the smallest (0.5.23, `_profile_available_bytes` of
    kv_cache_configurator.py and `measure_pre_model_load_memory` of bootstrap.py: the least of all ranks).
    """
    parallel = candidate.parallel
    before_weights = shape.runtime.before
    slack = (min(rooms) - before_weights) * (1 - fraction)
    budgets = []
    for stage in range(parallel.pipeline):
        room = min(rooms[rank] for rank in stage_ranks(parallel, stage))
        if candidate.engine.name == "vllm":
            # The fraction is one of what CUDA sees.
            unseen = shape.runtime.reserve
            budgets.append((room - unseen) * fraction - (shape.overheads[stage] - unseen))
        else:
            budgets.append(room - before_weights - slack)
    return budgets


def _counts(candidate: Candidate, shape: _RankBytes, stages: Sequence[float]) -> tuple[int, ...] | None:
    """Layers of each stage: what the service asks for, or what leaves the fullest stage most room."""
    layers = candidate.model.layers
    if candidate.asked_partition:
        return candidate.asked_partition
    if len(stages) == 1:
        return (layers,) if shape.totals[-1] < stages[0] else None
    return partition(_costs(candidate, shape), stages)


def _costs(candidate: Candidate, shape: _RankBytes) -> list[float]:
    """Each layer's weights and its part of one request's cache; the last one has the draft layers' as well."""
    cache = shape.pool.layer_bytes(candidate.context)
    costs = [layer + kept for layer, kept in zip(shape.layers, cache, strict=False)]
    costs[-1] += sum(cache[len(shape.layers) :])
    return costs


def _not_placed(candidate: Candidate, shape: _RankBytes, stages: Sequence[float]) -> Placement:
    """What the stages lack together, and a layer at least."""
    whole, largest = shape.totals[-1] - sum(stages), max(shape.layers)
    if not fits(shape.layers, stages):
        return Placement(missing=max(whole, largest), kind="weights")
    whole += sum(shape.pool.layer_bytes(candidate.context))
    return Placement(missing=max(whole, largest), kind="context")


def _lacking(
    candidate: Candidate, shape: _RankBytes, left: Sequence[float], runs: Sequence[tuple[int, int]]
) -> Placement:
    """What the poorest stage lacks; a block of tokens at least, as the cache is given out in blocks."""
    pool, context = shape.pool, candidate.context
    missing = (pool.needed_bytes(context, *run) - rest for rest, run in zip(left, runs, strict=True))
    kind: Literal["weights", "context"] = "weights" if min(left) < 0 else "context"
    return Placement(missing=max(*missing, BLOCK_TOKENS * sum(pool.layer_bytes(1)) / len(shape.layers)), kind=kind)


def _usage(
    candidate: Candidate,
    shape: _RankBytes,
    runs: Sequence[tuple[int, int]],
    left: Sequence[float],
    tokens: int,
    rooms: Sequence[float],
) -> tuple[GpuUsage, ...]:
    tensor, offload = candidate.parallel.tensor, candidate.cpu_offload_gib * GIB
    held = list[tuple[float, float, float]]()
    for (first, end), rest, extra, overhead in zip(runs, left, shape.extras, shape.overheads, strict=True):
        weights = shape.weights(first, min(end, len(shape.layers))) + extra
        cache = shape.pool.used_bytes(tokens, rest, first, end, candidate.context)
        held.append((weights - min(offload, weights), cache, overhead))
    return tuple(GpuUsage(room, *held[rank // tensor % len(runs)]) for rank, room in enumerate(rooms))
