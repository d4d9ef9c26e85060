"""Options that vLLM and SGLang have under the same names and by the same rules."""

from __future__ import annotations

from rigup.planner.candidate import Candidate
from rigup.render.options import Options


def kv_cache_type(candidate: Candidate) -> Options:
    """The KV cache's type, wherever the engine's own choice could be another than the plan's.

    The automatic choice is bf16 for sure but where a ModelOpt NVFP4 checkpoint may name FP8 for the cache in its
    config, which the engines follow.
    """
    automatic = candidate.kv_cache_type == "bf16" and candidate.checkpoint.scheme != "nvfp4"
    name = None if automatic else candidate.release.kv_cache_name(candidate.kv_cache_type)
    return {"--kv-cache-dtype": name} if name else {}


def parsers(candidate: Candidate) -> Options:
    """What reads tool calls and reasoning out of answers, where they are wanted and the release knows the model's."""
    known = candidate.release.parsers_of(candidate.model.family)
    chosen: Options = {}
    if known is not None and candidate.service.tools:
        chosen["--tool-call-parser"] = known.tool
    if known is not None and candidate.service.reasoning:
        chosen["--reasoning-parser"] = known.reasoning
    return chosen
