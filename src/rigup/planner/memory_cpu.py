"""vLLM on a CPU: one process that holds the weights, and a KV cache of whole GiB that it is told the size of."""

from __future__ import annotations

import math

from rigup.planner.candidate import Candidate
from rigup.planner.kv_cache import layer_token_bytes
from rigup.planner.overhead import TENSOR_ENGINE_HOST, sampler, tensor_engine_activations
from rigup.planner.usage import Placement
from rigup.planner.weights import weights_of
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
    token = model.layers * layer_token_bytes(model, candidate.kv_cache_type, tensor)
    cache = cache_gib(candidate) * GIB
    host = held + activations + cache + TENSOR_ENGINE_HOST
    return Placement(host=host, peer=host if candidate.hosts > 1 else 0.0, kv_tokens=int(cache // token))


def cache_gib(candidate: Candidate) -> int:
    """A rank's KV cache in GiB, as VLLM_CPU_KVCACHE_SPACE takes it: the service's own, else what its requests need."""
    asked = candidate.service.environment.get("VLLM_CPU_KVCACHE_SPACE", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    tensor = candidate.parallel.tensor
    token = candidate.model.layers * layer_token_bytes(candidate.model, candidate.kv_cache_type, tensor)
    return math.ceil(token * candidate.context * candidate.service.concurrency / GIB)
