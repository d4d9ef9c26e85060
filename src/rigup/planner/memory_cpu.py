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
    """Everything in host memory. The KV cache holds the whole context of each request in flight."""
    model = candidate.model
    weights = weights_of(candidate.checkpoint, model)
    held = weights.embedding + weights.head + model.layers * weights.layer
    activations = tensor_engine_activations(model, 1, 1, candidate.batched_tokens) + sampler(model, candidate.sequences)
    token = model.layers * layer_token_bytes(model, candidate.kv_cache_type)
    cache = cache_gib(candidate) * GIB
    return Placement(host=held + activations + cache + TENSOR_ENGINE_HOST, kv_tokens=int(cache // token))


def cache_gib(candidate: Candidate) -> int:
    """The KV cache in GiB, as VLLM_CPU_KVCACHE_SPACE takes it: the service's own, else what its requests need."""
    asked = candidate.service.environment.get("VLLM_CPU_KVCACHE_SPACE", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    token = candidate.model.layers * layer_token_bytes(candidate.model, candidate.kv_cache_type)
    return math.ceil(token * candidate.context * candidate.service.concurrency / GIB)
