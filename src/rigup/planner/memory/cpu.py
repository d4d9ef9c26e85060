"""vLLM on a CPU: one process that holds the weights, and a KV cache of whole GiB that it is told the size of."""

from __future__ import annotations

import math

from rigup.plan import HostParts
from rigup.planner.candidate import Candidate
from rigup.planner.memory.kv_cache import CachePool
from rigup.planner.memory.loading import draft_attention, draft_weights, growth_of, loads_vision, state_blocks
from rigup.planner.memory.overhead import TENSOR_ENGINE_HOST, sampler, tensor_engine_activations
from rigup.planner.memory.usage import Placement
from rigup.planner.memory.vllm_caches import vllm_pool
from rigup.planner.memory.weights import rank_totals, weights_of
from rigup.units import GIB

# vLLM 0.32.0 platforms/cpu.py, check_and_update_config: cache_config.block_size. On processors without AMX, those of
# latent vectors have 16 tokens, so that a cache may hold some tokens more than a plan says.
CPU_BLOCK_TOKENS = 128


def place_on_cpu(candidate: Candidate) -> Placement:
    """Everything in host memory, one rank a host. The KV cache holds the whole context of each request in flight."""
    model, tensor = candidate.model, candidate.parallel.tensor
    weights = weights_of(candidate.checkpoint, model)
    layers = rank_totals(candidate.checkpoint, model, tensor, tensor, growth_of(candidate))[-1]
    held = (weights.embedding + weights.head) / tensor + layers
    held += (weights.vision if loads_vision(candidate) else 0.0) + draft_weights(candidate)
    activations = tensor_engine_activations(model, candidate.expert_shards, tensor, candidate.batched_tokens)
    activations += sampler("vllm", candidate.version, model, candidate.sequences)
    cache = cache_gib(candidate) * GIB
    host = held + activations + cache + TENSOR_ENGINE_HOST
    peer = host if candidate.hosts > 1 else 0.0
    tokens = _pool(candidate).tokens(cache, 0, _layers(candidate), candidate.context)
    parts = HostParts(weights=round(held), kv_cache=cache) if candidate.hosts == 1 else None
    return Placement(host=host, peer=peer, host_parts=parts, kv_tokens=tokens)


def cache_gib(candidate: Candidate) -> int:
    """A rank's KV cache in GiB, as VLLM_CPU_KVCACHE_SPACE takes it: the service's own, else what its requests need."""
    asked = candidate.service.environment.get("VLLM_CPU_KVCACHE_SPACE", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return needed_gib(candidate, candidate.service.concurrency)


def needed_gib(candidate: Candidate, requests: int) -> int:
    """The whole GiB of a rank's KV cache that the contexts of so many requests fit into."""
    return math.ceil(_pool(candidate).needed_bytes(candidate.context, 0, _layers(candidate)) * requests / GIB)


def _pool(candidate: Candidate) -> CachePool:
    model, storage, drafts = candidate.model, candidate.storage, draft_attention(candidate)
    return vllm_pool(model, storage, candidate.batched_tokens, drafts, state_blocks(candidate), CPU_BLOCK_TOKENS)


def _layers(candidate: Candidate) -> int:
    return len(_pool(candidate).layer_bytes(1))
