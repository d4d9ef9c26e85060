"""llama.cpp: whole layers on each GPU, embeddings on the host, the output on the last GPU, experts on either.

Over several hosts the GPUs of the others come first (src/llama.cpp, b11434: "add RPC servers at the front of the
list"), so that the output is on the head, which has the embeddings. Hosts without a GPU lend their memory in the same
way (tools/rpc/rpc-server.cpp falls back to the CPU), but then the head's own layers are the first ones and the last
other host has the output (src/llama-model.cpp: i_gpu_start).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from rigup.catalogue.buffers import BatchShape, is_whole
from rigup.catalogue.draft_layers import draft_modules
from rigup.plan import HostParts
from rigup.planner.candidate import Candidate, GpuUsage
from rigup.planner.memory.llama_cpp_buffers import (
    DOWN_ON_PROCESSOR,
    PIPELINE_COPIES,
    Arrangement,
    by_shape,
    expert_copies,
    inputs_held,
    layer_inputs,
    logits,
    reservations,
)
from rigup.planner.memory.llama_cpp_caches import draft_cells, is_unified, layer_cells
from rigup.planner.memory.overhead import (
    LLAMA_CPP_HOST,
    LLAMA_CPP_NCCL,
    LLAMA_CPP_RESERVE,
    UNIFIED_MEMORY_RESERVE,
)
from rigup.planner.memory.placement import fits, partition
from rigup.planner.memory.usage import Placement
from rigup.planner.memory.weights import Weights, weights_of

# Tokens of a step from which ggml-cuda computes what lies in host memory.
_LEAST_OFFLOADED = 32


def place_llama_cpp(candidate: Candidate, rooms: Sequence[float]) -> Placement:
    """Places the layers so that the fullest GPU is as empty as can be.

    rooms: bytes of each GPU; none of them is a CPU-only rig.
    """
    model = candidate.model
    weights = weights_of(candidate.checkpoint, model)
    tokens = candidate.context * candidate.sequences
    caches = layer_cells(candidate)
    batch = _batch(candidate)
    output_logits = logits(model, _outputs(candidate))
    draft = _drafted(candidate, weights, batch)
    # On a processor, over several hosts and of cut layers: nobody was asked.
    whole = by_shape(model, batch, candidate.kv_cache_type, 1) + output_logits
    if not rooms and candidate.hosts > 1:
        return _on_hosts(candidate, weights, caches, whole, tokens)
    if not rooms:
        held = weights.embedding + weights.head + weights.body + draft.weights + draft.embedding
        kept = sum(caches) + draft.cache
        host = held + kept + whole + draft.buffers + LLAMA_CPP_HOST
        return Placement(host=host, host_parts=HostParts(weights=round(held), kv_cache=round(kept)), kv_tokens=tokens)
    if candidate.parallel.tensor > 1:
        return _cut(candidate, weights, caches, whole, tokens, rooms)
    arrangement = Arrangement(len(rooms), candidate.offloads_experts, candidate.copies_experts)
    reserved = reservations(model, candidate.version, batch, candidate.kv_cache_type, arrangement)
    # Of any layers at most, until it is known which a GPU has.
    overheads = [candidate.runtime.total + buffers.bytes(0, bare=False) for buffers in reserved]
    overheads[0] += _expert_copies(candidate, weights)
    overheads[-1] += output_logits + draft.buffers
    # A tied output has no tensor of its own: llama.cpp then puts a copy of the embeddings on the last GPU.
    output = (weights.head or weights.embedding) + draft.weights
    reserves = (UNIFIED_MEMORY_RESERVE if gpu.unified_memory else LLAMA_CPP_RESERVE for gpu in candidate.gpus)
    usable = [room * (1 - reserve) for room, reserve in zip(rooms, reserves, strict=True)]
    free = [room - overhead for room, overhead in zip(usable, overheads, strict=True)]
    free[-1] -= output + draft.cache
    # Without the part of its experts that is on the host.
    shares = candidate.host_expert_shares
    layers = [layer.total - share * layer.experts for layer, share in zip(weights.layers, shares, strict=True)]
    first_makes = any(entry.own_mask.made for entry in model.attention)
    inputs: Sequence[float] = [0.0] * len(layers)
    if len(rooms) > 1 or not first_makes:
        pipelined = len(rooms) > 1 and not candidate.offloads_experts
        inputs = layer_inputs(model, batch, PIPELINE_COPIES if pipelined else 1)
    layer = max(buffers.layer for buffers in reserved)
    taken = [cache + own + layer for cache, own in zip(caches, inputs, strict=True)]
    counts = partition([layer + each for layer, each in zip(layers, taken, strict=True)], free)
    if counts is None:
        return _lacking(layers, taken, free)
    ends = list(accumulate(counts))
    hosted = [share == 1 or not layer.experts for share, layer in zip(shares, weights.layers, strict=True)]
    for gpu, (end, count, buffers) in enumerate(zip(ends, counts, reserved, strict=True)):
        run = slice(end - count, end)
        overheads[gpu] += buffers.bytes(count, all(hosted[run])) - buffers.bytes(0, bare=False)
        if gpu >= int(first_makes):
            overheads[gpu] += inputs_held(inputs[run], shares[run])
    gpus = _usage(counts, layers, caches, overheads, (output, draft.cache), rooms)
    host = LLAMA_CPP_HOST + weights.embedding + draft.embedding
    host += weights.experts_on_host(candidate.host_expert_shares)
    if model.gguf_architecture in DOWN_ON_PROCESSOR:  # of one layer at a time
        host += max(layer.expert_matrix for layer in weights.layers)
    # A file's own draft layers are layers for the split as well, loaded or not.
    behind = 1 + (draft_modules(model) if weights.mtp else 0)
    split = (*counts[:-1], counts[-1] + behind) if len(counts) > 1 else ()
    peer = LLAMA_CPP_HOST if candidate.hosts > 1 else 0
    return Placement(gpus=gpus, host=host, peer=peer, kv_tokens=tokens, tensor_split=split)


def _cut(
    candidate: Candidate,
    weights: Weights,
    caches: Sequence[float],
    buffers: float,
    tokens: int,
    rooms: Sequence[float],
) -> Placement:
    """An equal part of each layer on each GPU; whole there is what llama.cpp does not cut, and its buffers.

    Source: llama.cpp b11434 src/llama-model.cpp, llama_meta_device_get_split_state: attention, feed-forward, experts
    and output are cut in steps of whole heads and of 128 or 256 columns. What is left over goes to one GPU after the
    other, counted for each kind of layer: a layer of each kind more on one of them, at most. Router, norms, shared
    experts and a tied output are whole.

    caches: those of one GPU.
    """
    ranks = candidate.parallel.tensor
    whole = 0.0 if weights.head else weights.embedding
    cut = weights.head / ranks
    for layer in weights.layers:
        shared = layer.dense if layer.experts else 0.0
        whole += layer.whole + shared
        cut += (layer.total - layer.whole - shared) / ranks
    left_over = len(candidate.model.attention) * max(layer.total for layer in weights.layers)
    held, kept, overhead = whole + cut + left_over, sum(caches), candidate.runtime.total + buffers
    # Upstream's images have none (noonghunna/club-3090#928 on server-cuda-b10236).
    overhead += LLAMA_CPP_NCCL[ranks > 2] if candidate.build == "source" else 0
    reserves = (UNIFIED_MEMORY_RESERVE if gpu.unified_memory else LLAMA_CPP_RESERVE for gpu in candidate.gpus)
    free = min(room * (1 - reserve) for room, reserve in zip(rooms, reserves, strict=True)) - overhead
    if held + kept > free:
        return Placement(missing=held + kept - free, kind="weights" if held > free else "context")
    gpus = tuple(GpuUsage(room, held, kept, overhead) for room in rooms)
    return Placement(gpus=gpus, host=LLAMA_CPP_HOST + weights.embedding, kv_tokens=tokens)


def _batch(candidate: Candidate) -> BatchShape:
    """One stream of the cache for all slots sees the tokens of all of them."""
    slots = 1 if is_unified(candidate) else candidate.sequences
    context = candidate.context * candidate.sequences // slots
    return BatchShape(context, slots, candidate.batched_tokens, is_whole(candidate.checkpoint))


def _outputs(candidate: Candidate) -> int:
    """Tokens of a step for which llama-server wants logits: the last of each slot, and what was drafted behind it.

    Source: llama.cpp b11434 common/speculative.cpp, common_speculative_get_output_limits.
    """
    drafted = candidate.draft.tokens if candidate.draft else 0
    return min(candidate.batched_tokens, candidate.sequences * (1 + drafted))


def _expert_copies(candidate: Candidate, weights: Weights) -> float:
    """Bytes of experts in host memory that the first GPU has room for, so that it computes them for longer prompts.

    Source: llama.cpp b11434 ggml/src/ggml-backend.cpp, op_offload: the first device that wants an operation takes it;
    ggml-cuda wants those of 32 tokens or more (GGML_OP_OFFLOAD_MIN_BATCH), and reads host memory where it shares it.
    """
    if not candidate.copies_experts or candidate.batched_tokens < _LEAST_OFFLOADED:
        return 0.0
    return weights.expert_copies(candidate.host_expert_shares, expert_copies(candidate.model, candidate.version))


def _on_hosts(
    candidate: Candidate, weights: Weights, caches: Sequence[float], buffers: float, tokens: int
) -> Placement:
    """As many layers on each host as on any other, to one, in host memory; the embeddings on the head."""
    costs = [layer.total + cache for layer, cache in zip(weights.layers, caches, strict=True)]
    each = sum(costs) / len(costs)
    # As many layers on each: with room for all of them everywhere, no host's memory has a say.
    counts = partition([each] * len(costs), [2 * (len(costs) + 1) * each] * candidate.hosts)
    if counts is None:
        return Placement(missing=each, kind="weights")
    head, *others = counts
    output = weights.head or weights.embedding
    host = LLAMA_CPP_HOST + weights.embedding + sum(costs[:head]) + buffers
    ends = list(accumulate(counts))
    fullest = max(sum(costs[end - count : end]) for count, end in zip(others, ends[1:], strict=True))
    peer = LLAMA_CPP_HOST + fullest + output + buffers
    split = (*others[:-1], others[-1] + 1) if len(others) > 1 else ()
    return Placement(host=host, peer=peer, kv_tokens=tokens, tensor_split=split, remote_layers=sum(others) + 1)


class _Drafted(NamedTuple):
    """Bytes of what drafts tokens: its context is a second one, with buffers of its own. embedding: in host memory."""

    weights: float = 0.0
    cache: float = 0.0
    buffers: float = 0.0
    embedding: float = 0.0


def _drafted(candidate: Candidate, weights: Weights, batch: BatchShape) -> _Drafted:
    """Built-in layers are on the GPU with the output, and rigup puts a smaller model there, but for its embeddings."""
    draft = candidate.draft
    if draft is None:
        return _Drafted()
    model, held, embedding = draft.model or candidate.model, weights.mtp, 0.0
    if draft.checkpoint is not None:
        own = weights_of(draft.checkpoint, model)
        embedding = own.embedding
        held = own.body + (own.head or (embedding if candidate.gpus else 0.0))
    buffers = by_shape(model, batch, "f16", 1) + logits(model, candidate.batched_tokens)
    return _Drafted(held, draft_cells(candidate, draft), buffers, embedding)


def _lacking(layers: list[float], caches: Sequence[float], free: Sequence[float]) -> Placement:
    """What is missing; at least one layer where only the granularity of whole layers is in the way."""
    if not fits(layers, free):
        return Placement(missing=max(sum(layers) - sum(free), min(layers)), kind="weights")
    missing = sum(layers) + sum(caches) - sum(free)
    return Placement(missing=max(missing, min(layers) + min(caches)), kind="context")


def _usage(
    counts: tuple[int, ...],
    layers: list[float],
    caches: Sequence[float],
    overheads: list[float],
    last: tuple[float, float],
    rooms: Sequence[float],
) -> tuple[GpuUsage, ...]:
    usage, start = [], 0
    for position, count in enumerate(counts):
        more, cache = last if position == len(counts) - 1 else (0.0, 0.0)
        held, kept = sum(layers[start : start + count]) + more, sum(caches[start : start + count]) + cache
        usage.append(GpuUsage(rooms[position], held, kept, overheads[position]))
        start += count
    return tuple(usage)
