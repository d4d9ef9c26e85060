"""vLLM and SGLang: shards of every layer on each tensor-parallel rank, runs of layers on each pipeline stage.

Sources: vllm/v1/worker/gpu_worker.py (0.33.0): the KV cache is what --gpu-memory-utilization leaves after weights
and the profiled peak, and every stage gets as many tokens as the poorest one has. SGLang 0.5.23
(distributed/bootstrap.py: measure_pre_model_load_memory; mem_cache/kv_cache_configurator.py: _profile_available_bytes):
--mem-fraction-static is the part of what is free before loading that weights and KV cache may take. What is used by
then, NCCL and the CUDA context, nobody has published; the whole of the engine's runtime is taken for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rigup.planner.candidate import Candidate, GpuUsage, expert_ranks, stage_ranks
from rigup.planner.memory.kv_cache import layer_token_bytes
from rigup.planner.memory.overhead import TENSOR_ENGINE_HOST, request_table, sampler, tensor_engine_activations
from rigup.planner.memory.placement import fits, partition
from rigup.planner.memory.usage import Placement
from rigup.planner.memory.weights import weights_of
from rigup.units import GIB

_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class _Shape:
    """Bytes on one rank: of a layer's weights, of a token in a layer's KV cache, and of each stage beside layers."""

    layer: float
    token: float
    extras: tuple[float, ...]
    overheads: tuple[float, ...]


def place_tensor_engine(candidate: Candidate, rooms: Sequence[float]) -> Placement:
    """Places the model on the ranks, in the order of `stage_ranks` in both engines."""
    parallel = candidate.parallel
    shape = _shape(candidate)
    fraction = _fraction(candidate, shape, min(rooms))
    offload = candidate.cpu_offload_gib * GIB
    budgets = _budgets(candidate, rooms, shape, fraction)
    stages = [budget - extra + offload for budget, extra in zip(budgets, shape.extras, strict=True)]
    counts = _counts(candidate, shape, stages)
    if counts is None:
        cache = shape.token * candidate.context
        whole = candidate.model.layers * (shape.layer + cache) - sum(stages)
        if not fits([shape.layer] * candidate.model.layers, stages):
            return Placement(missing=max(whole - candidate.model.layers * cache, shape.layer), kind="weights")
        return Placement(missing=max(whole, shape.layer), kind="context")
    # At most the whole budget: weights that are not there cannot be offloaded.
    left = [min(b, s - n * shape.layer) for b, s, n in zip(budgets, stages, counts, strict=True)]
    if candidate.engine.name == "sglang":  # each rank goes by what the fullest of all has free
        left = [min(left)] * len(left)
    tokens = min(int(rest // (count * shape.token)) for rest, count in zip(left, counts, strict=True))
    spare = min(rest - count * shape.token * candidate.context for rest, count in zip(left, counts, strict=True))
    tokens -= tokens % _BLOCK_TOKENS
    if tokens < candidate.context:
        return _lacking(candidate, shape, left, counts)
    host = len(rooms) // candidate.hosts * (TENSOR_ENGINE_HOST + offload)
    return Placement(
        gpus=_usage(candidate, shape, counts, tokens, rooms),
        host=host,
        peer=host if candidate.hosts > 1 else 0.0,
        kv_tokens=tokens * parallel.data,
        cache_spare=spare,
        memory_fraction=fraction,
        pipeline_partition=counts if parallel.pipeline > 1 else (),
    )


def _shape(candidate: Candidate) -> _Shape:
    model, parallel = candidate.model, candidate.parallel
    weights = weights_of(candidate.checkpoint, model)
    tensor, stages = parallel.tensor, parallel.pipeline
    sharing = expert_ranks(candidate.engine.name, tensor, parallel.data)
    layer = (weights.attention + weights.dense) / tensor + weights.router + weights.experts / sharing
    extras = [0.0] * stages
    extras[0] += weights.embedding / tensor
    extras[-1] += (weights.head or (weights.embedding if stages > 1 else 0.0)) / tensor
    activations = tensor_engine_activations(model, candidate.expert_shards, tensor, candidate.batched_tokens)
    table = request_table(candidate.sequences, candidate.context) if candidate.engine.name == "sglang" else 0.0
    overheads = [candidate.runtime_bytes + candidate.driver_bytes + activations + table] * stages
    overheads[-1] += sampler(model, candidate.sequences)
    token = layer_token_bytes(model, candidate.storage)
    return _Shape(layer, token, tuple(extras), tuple(overheads))


def _fraction(candidate: Candidate, shape: _Shape, room: float) -> float:
    """The part of the GPUs in use. SGLang's does not cover the overhead, so that there must be room beside it.

    How much of the runtime comes before SGLang measures, and how much (CUDA graphs) after, nobody has published:
    `_budgets` takes all of it to come before, and here all of it comes after.
    """
    fraction = candidate.memory_fraction
    if candidate.engine.name == "vllm" or candidate.fraction_given:
        return fraction
    return max(0.01, min(fraction, int(100 * (1 - max(shape.overheads) / room)) / 100))


def _budgets(candidate: Candidate, rooms: Sequence[float], shape: _Shape, fraction: float) -> list[float]:
    """Bytes for weights and KV cache on the poorest GPU of each stage.

    SGLang leaves the same on each GPU, a part of the smallest (0.5.23, `_profile_available_bytes` of
    kv_cache_configurator.py and `measure_pre_model_load_memory` of bootstrap.py: the least of all ranks).
    """
    parallel = candidate.parallel
    before_weights = candidate.runtime_bytes + candidate.driver_bytes
    slack = (min(rooms) - before_weights) * (1 - fraction)
    budgets = []
    for stage in range(parallel.pipeline):
        room = min(rooms[rank] for rank in stage_ranks(parallel, stage))
        if candidate.engine.name == "vllm":
            budgets.append(room * fraction - shape.overheads[stage])
        else:
            budgets.append(room - before_weights - slack)
    return budgets


def _counts(candidate: Candidate, shape: _Shape, stages: Sequence[float]) -> tuple[int, ...] | None:
    """Layers of each stage: what the service asks for, or what leaves the fullest stage most room."""
    layers = candidate.model.layers
    if candidate.asked_partition:
        return candidate.asked_partition
    if len(stages) == 1:
        return (layers,) if layers * shape.layer < stages[0] else None
    return partition([shape.layer + shape.token * candidate.context] * layers, stages)


def _lacking(candidate: Candidate, shape: _Shape, left: Sequence[float], counts: tuple[int, ...]) -> Placement:
    """What the poorest stage lacks; a block of tokens at least, as the cache is given out in blocks."""
    missing = (count * shape.token * candidate.context - rest for rest, count in zip(left, counts, strict=True))
    kind: Literal["weights", "context"] = "weights" if min(left) < 0 else "context"
    return Placement(missing=max(*missing, _BLOCK_TOKENS * shape.token), kind=kind)


def _usage(
    candidate: Candidate, shape: _Shape, counts: tuple[int, ...], tokens: int, rooms: Sequence[float]
) -> tuple[GpuUsage, ...]:
    tensor, offload = candidate.parallel.tensor, candidate.cpu_offload_gib * GIB
    usage = []
    for rank, room in enumerate(rooms):
        stage = rank // tensor % len(counts)
        weights = counts[stage] * shape.layer + shape.extras[stage]
        cache = counts[stage] * shape.token * tokens
        usage.append(GpuUsage(room, weights - min(offload, weights), cache, shape.overheads[stage]))
    return tuple(usage)
