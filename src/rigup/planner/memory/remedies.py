"""What helps a candidate that lacks memory, as hints say it: only what there is on this rig and in the catalogue."""

from __future__ import annotations

from rigup.planner.candidate import Candidate
from rigup.units import MIB

_SMALLEST_CACHE = ("fp8", "q4_0")


def for_weights(candidate: Candidate) -> str:
    """A hint for weights that do not fit."""
    remedies = ["a smaller quantisation"] * candidate.has_smaller + [more_gpus(candidate)]
    # otherwise the planner has tried it
    untried = candidate.service.offload == "none" or candidate.engine.name != "llama.cpp"
    if candidate.experts and untried:
        remedies.append("experts in host memory (offload, on llama.cpp)")
    return _use(remedies)


def for_context(candidate: Candidate) -> str:
    """A hint for a KV cache that does not fit."""
    remedies = ["a shorter context"]
    if candidate.kv_cache_type not in _SMALLEST_CACHE:
        remedies.append("a smaller KV cache type")
    return _use(remedies + ["a smaller quantisation"] * candidate.has_smaller)


def for_sizes(candidate: Candidate) -> str:
    """A hint for parallel sizes that need more GPUs than the service has."""
    return _use(["smaller sizes", more_gpus(candidate)])


def instead_of_offload(candidate: Candidate) -> str:
    """A hint for weights in host memory."""
    there = sum(gpu.memory_mib or 0 for gpu in candidate.gpus) * MIB
    if candidate.has_smaller and candidate.smallest_bytes < there:
        return "use a smaller quantisation that fits the GPUs: it is faster"
    return "list the models that fit the GPUs and are faster: rigup fit"


def more_gpus(candidate: Candidate) -> str:
    """Those of the rig that the service's `gpus` leaves out, before any that would have to be bought."""
    left_out = candidate.service.gpus is not None and len(candidate.local_gpus) < len(candidate.rig.gpus)
    return f"all {len(candidate.rig.gpus)} GPUs of the rig (gpus)" if left_out else "a rig with more GPUs"


def _use(remedies: list[str]) -> str:
    *first, last = remedies
    comma = "," if len(first) > 1 else ""
    return f"use {', '.join(first)}{comma} or {last}" if first else f"use {last}"
