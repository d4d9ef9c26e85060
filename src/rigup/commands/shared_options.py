"""Options with the same names and rules in vLLM and SGLang."""

from __future__ import annotations

from rigup.commands.options import Options
from rigup.planner.candidate import Candidate


def kv_cache_type(candidate: Candidate) -> Options:
    """The KV cache's type, unless the engine is certain to choose the plan's type by itself.

    The automatic choice is always bf16, except that a ModelOpt NVFP4 checkpoint may name FP8 for the cache in its
    config, which the engines follow.
    """
    automatic = candidate.kv_cache_type == "bf16" and candidate.checkpoint.scheme != "nvfp4"
    name = None if automatic else candidate.release.kv_cache_name(candidate.kv_cache_type)
    return {"--kv-cache-dtype": name} if name else {}


def parsers(candidate: Candidate) -> Options:
    """The parsers of tool calls and reasoning, if the service wants them and the release has them."""
    known = candidate.release.parsers_of(candidate.model)
    chosen: Options = {}
    if known.tool and candidate.service.tools:
        chosen["--tool-call-parser"] = known.tool[0]
    if known.reasoning and candidate.service.reasoning:
        chosen["--reasoning-parser"] = known.reasoning[0]
    return chosen
