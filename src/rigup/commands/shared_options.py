"""Options and variables with the same rules in several engines: caches, parsers, sampling, and which GPUs they see."""

from __future__ import annotations

import json

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


def sampling(candidate: Candidate) -> dict[str, int | float]:
    """Maps parameter to value; counts such as top_k are whole numbers, as the servers require."""
    merged = {**candidate.model.sampling, **candidate.service.sampling}
    return {name: int(value) if name == "top_k" else value for name, value in merged.items()}


def sampling_json(candidate: Candidate) -> str | None:
    """The sampling defaults as one word of compact JSON; None without values."""
    found = sampling(candidate)
    return json.dumps(found, separators=(",", ":")) if found else None


def gpu_variables(candidate: Candidate) -> dict[str, str]:
    """Makes CUDA count GPUs in the order of NVML and the plan, and selects the GPUs if not all are used.

    Source: CUDA C++ programming guide, "CUDA environment variables"; CUDA's default order is fastest first.
    """
    if not candidate.rig.gpus:
        return {}
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if candidate.local_gpus != tuple(range(len(candidate.rig.gpus))):
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in candidate.local_gpus)
    return variables
