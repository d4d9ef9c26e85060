"""Options that vLLM and SGLang have under the same names and by the same rules."""

from __future__ import annotations

from rigup.commands.options import Options
from rigup.planner.candidate import Candidate


def kv_cache_type(candidate: Candidate) -> Options:
    """The KV cache's type, wherever the engine's own choice could be another than the plan's.

    The automatic choice is always bf16 except where a ModelOpt NVFP4 checkpoint may name FP8 for the cache in its
    config, which the engines follow.
    """
    automatic = candidate.kv_cache_type == "bf16" and candidate.checkpoint.scheme != "nvfp4"
    name = None if automatic else candidate.release.kv_cache_name(candidate.kv_cache_type)
    return {"--kv-cache-dtype": name} if name else {}


def parsers(candidate: Candidate) -> Options:
    """The parsers of tool calls and reasoning, if the service asks for them and the release has them."""
    known = candidate.release.parsers_of(candidate.model)
    chosen: Options = {}
    if known.tool and candidate.service.tools:
        chosen["--tool-call-parser"] = known.tool[0]
    if known.reasoning and candidate.service.reasoning:
        chosen["--reasoning-parser"] = known.reasoning[0]
    return chosen
