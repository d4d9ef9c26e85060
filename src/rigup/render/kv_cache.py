"""When the KV cache's type must be said: wherever the engine's own choice could be another than the plan's."""

from __future__ import annotations

from rigup.planner.candidate import Candidate


def says_kv_cache_type(candidate: Candidate) -> bool:
    """False only where the automatic choice is bf16 for sure.

    ModelOpt's NVFP4 checkpoints may name FP8 for the cache in their config, and the engines follow that.
    """
    return candidate.kv_cache_type != "bf16" or candidate.checkpoint.scheme == "nvfp4"
