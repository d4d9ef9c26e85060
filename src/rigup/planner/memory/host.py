"""Host memory: what a service needs of it, what the system keeps, and what is left for llama-server's prompt cache."""

from __future__ import annotations

from rigup.planner.candidate import Candidate
from rigup.planner.engine_memory import MEMORY_OPTIONS, PROMPT_CACHE
from rigup.rig import Rig
from rigup.units import GIB, MIB

# What a machine without GPUs is taken to have when its rig does not say: enough to rehearse on, too little
# for a large model.
_ASSUMED_HOST_GIB = 4
# Left to the operating system: assumed, not measured. The least is what Debian's installation guide (3.4, no desktop)
# recommends a machine to have.
_SYSTEM_PART = 0.05
_LEAST_SYSTEM_MIB = 512
# llama-server b11434 --help: --cache-ram, the prompts that it remembers in host memory; -1 is no limit.
_PROMPT_CACHE = MEMORY_OPTIONS["llama.cpp"][PROMPT_CACHE]
PROMPT_CACHE_OPTIONS = _PROMPT_CACHE.names
PROMPT_CACHE_MIB = 8192
# The part of a host's memory that rigup gives such a cache at most, so that other services have room: a judgement.
_PROMPT_CACHE_PART = 1 / 8


def system_mib(total_mib: int) -> int:
    """What the operating system keeps of a host's memory, MiB."""
    return max(_LEAST_SYSTEM_MIB, int(total_mib * _SYSTEM_PART))


def kept_for_system_mib(candidate: Candidate, total_mib: int) -> int:
    """What the operating system keeps beside this service, MiB.

    What shares memory is counted once: where an engine takes a part of memory that GPU and host share, the rest of it
    is the system's already, and the engine's own process lives there as well. 0.91 to 0.93 of a GB10 have been run.
    """
    if not total_mib:
        return 0
    shared = any(gpu.unified_memory for gpu in candidate.gpus) and candidate.engine.name != "llama.cpp"
    return _LEAST_SYSTEM_MIB if shared else system_mib(total_mib)


def host_gib_for(needed_mib: int) -> int:
    """The least whole GiB of memory of a host that has so many MiB for services."""
    gib = needed_mib // 1024
    while gib * 1024 - system_mib(gib * 1024) < needed_mib:
        gib += 1
    return gib


def total_mib(candidate: Candidate) -> int | None:
    """What a host has; None where the rig does not say and nothing may be assumed to be wrong.

    Offloading needs the declaration, and so does much on a CPU alone.
    """
    if candidate.rig.host_memory_gib is None and offloads(candidate):
        return 0
    return total_of(candidate.rig)


def total_of(rig: Rig) -> int | None:
    """What a host of the rig has, MiB: declared, or assumed where there is no GPU; else None."""
    if rig.host_memory_gib is not None:
        return int(rig.host_memory_gib * GIB // MIB)
    return None if rig.gpus else _ASSUMED_HOST_GIB * 1024


def offloads(candidate: Candidate) -> bool:
    """Whether weights that belong to a GPU lie in host memory."""
    return candidate.offloads_experts or candidate.cpu_offload_gib > 0


def needed_mib(candidate: Candidate, rank: int) -> int:
    """MiB of one host's memory, with what GPUs hold of it that have none of their own."""
    needed = candidate.host_memory_of(rank)
    if any(gpu.unified_memory for gpu in candidate.gpus):
        rows = candidate.memory_of(rank)
        needed += sum(row.weights_mib + row.kv_cache_mib + row.overhead_mib for row in rows)
    return needed


def asks_for_prompt_cache(candidate: Candidate) -> bool:
    """Whether the service's flags say how large the prompt cache is."""
    return any(name in candidate.service.flags for name in PROMPT_CACHE_OPTIONS)


def prompt_cache_mib(candidate: Candidate) -> int | None:
    """What llama-server may come to remember prompts in: the service's own figure, else its default or what is left.

    candidate: settled but for this cache. One without a limit is counted as the default. None where there is no such
    cache.
    """
    if candidate.engine.name != "llama.cpp" or PROMPT_CACHE_OPTIONS[0] not in candidate.known_options:
        return None
    for name in PROMPT_CACHE_OPTIONS:
        if name in candidate.service.flags:
            asked = _PROMPT_CACHE.value(candidate.service.flags[name])
            return int(asked) if asked is not None and asked >= 0 else PROMPT_CACHE_MIB
    total = total_mib(candidate)
    if total is None:
        return PROMPT_CACHE_MIB
    left = total - system_mib(total) - needed_mib(candidate, 0)
    return max(0, min(PROMPT_CACHE_MIB, int(total * _PROMPT_CACHE_PART), left))
