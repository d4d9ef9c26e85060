"""vLLM on a CPU: one process that holds the weights, and a KV cache of whole GiB that it is told the size of."""

from __future__ import annotations

import math

from rigup.planner.candidate import Candidate
from rigup.planner.memory.kv_cache import token_bytes
from rigup.planner.memory.overhead import TENSOR_ENGINE_HOST, sampler, tensor_engine_activations
from rigup.planner.memory.usage import Placement
from rigup.planner.memory.weights import weights_of
from rigup.units import GIB


def place_on_cpu(candidate: Candidate) -> Placement:
    """Everything in host memory, one rank a host. The KV cache holds the whole context of each request in flight."""
    model, tensor = candidate.model, candidate.parallel.tensor
    weights = weights_of(candidate.checkpoint, model)
    cut = weights.attention + weights.dense + weights.experts
    held = (weights.embedding + weights.head + model.layers * cut) / tensor + model.layers * weights.router
    shards = candidate.expert_shards
    activations = tensor_engine_activations(model, shards, tensor, candidate.batched_tokens)
    activations += sampler(model, candidate.sequences)
    cache = cache_gib(candidate) * GIB
    host = held + activations + cache + TENSOR_ENGINE_HOST
    peer = host if candidate.hosts > 1 else 0.0
    return Placement(host=host, peer=peer, kv_tokens=int(cache // _token_bytes(candidate)))


def cache_gib(candidate: Candidate) -> int:
    """A rank's KV cache in GiB, as VLLM_CPU_KVCACHE_SPACE takes it: the service's own, else what its requests need."""
    asked = candidate.service.environment.get("VLLM_CPU_KVCACHE_SPACE", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return needed_gib(candidate, candidate.service.concurrency)


def needed_gib(candidate: Candidate, requests: int) -> int:
    """The whole GiB of a rank's KV cache that the contexts of so many requests fit into."""
    return math.ceil(_token_bytes(candidate) * candidate.context * requests / GIB)


def _token_bytes(candidate: Candidate) -> float:
    """Bytes of KV cache that a token takes on one rank."""
    return token_bytes(candidate.model, candidate.storage)
