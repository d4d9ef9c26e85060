"""Whether a candidate fits, and what each GPU and the host will hold if it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from rigup.planner.candidate import Candidate, mib
from rigup.planner.engine_memory import MEMORY_OPTIONS, SEQUENCES
from rigup.planner.memory.host import kept_for_system_mib, needed_mib, prompt_cache_mib, total_mib
from rigup.planner.memory.usage import Placement, capacities
from rigup.units import MIB

# Percent of the planned blocks of states that a plan takes for sequences: with one block less than sequences vLLM does
# not start, and the KV cache comes out a few percent off.
STATE_BLOCKS_TAKEN = 90
_STATES_SOURCE = "vLLM 0.33.0: max_num_seqs exceeds the available blocks of states"


class Shortfall(NamedTuple):
    """Why a candidate does not fit.

    kind: "weights" do not fit, the "context" does not, the "host" memory does not, the capacity is "unknown",
    there are too few "gpus", too many "sequences" for the states, the "partition" that the service gives is none of
    this model, there are more "stages" than layers, or "hosts" cannot share the ranks.
    missing_mib: what is lacking. message says it in one sentence, without a full stop. hint, source: where they are
    other than those of the kind.
    """

    candidate: Candidate
    kind: Literal["weights", "context", "host", "unknown", "gpus", "sequences", "partition", "stages", "hosts"]
    missing_mib: int
    message: str
    hint: str = ""
    source: str = ""


def place_in_memory(candidate: Candidate) -> Candidate | Shortfall:
    """The candidate with its memory worked out, or why it does not fit."""
    limits = capacities(candidate)
    if None in limits:
        message = (
            "this GPU shares the host's memory, but the rig does not declare how much there is: set rig.host_memory_gib"
        )
        return Shortfall(candidate, "unknown", 0, message)
    rooms = [float(limit or 0) for limit in limits]
    placement = _place(candidate, rooms)
    if placement.missing > 0:
        return _gpu_shortfall(candidate, placement)
    sequences, most = candidate.sequences, placement.most_sequences
    if most and sequences > most and MEMORY_OPTIONS["vllm"][SEQUENCES].given(candidate.service):
        return _too_many_sequences(candidate, most)
    if most:
        sequences = min(sequences, max(1, most * STATE_BLOCKS_TAKEN // 100))
        if sequences < candidate.sequences and sequences * candidate.parallel.data < candidate.service.concurrency:
            return _too_many_requests(candidate, sequences * candidate.parallel.data)
    free = min((use.free_mib for use in placement.gpus), default=None)
    if free is not None and free < 0:
        return _gpu_shortfall(candidate, placement._replace(missing=MIB * -free))
    settled = replace(
        candidate,
        sequences=sequences,
        usage=placement.gpus,
        free_mib=free,
        kv_tokens=placement.kv_tokens,
        cache_spare_mib=int(placement.cache_spare // MIB),
        host_memory_mib=mib(placement.host),
        host_parts=placement.host_parts,
        peer_memory_mib=mib(placement.peer),
        memory_fraction=placement.memory_fraction,
        pipeline_partition=placement.pipeline_partition,
        tensor_split=placement.tensor_split,
        remote_layers=placement.remote_layers,
    )
    cache = prompt_cache_mib(settled)
    if cache is not None:
        settled = replace(settled, host_memory_mib=settled.host_memory_mib + cache, prompt_cache_mib=cache)
    return _host_shortfall(settled) or settled


def _place(candidate: Candidate, rooms: list[float]) -> Placement:
    """Places it as its engine does; that code is imported for its first candidate, since most rigs run one engine."""
    if candidate.engine.name == "llama.cpp":
        from rigup.planner.memory.llama_cpp import place_llama_cpp

        return place_llama_cpp(candidate, rooms)
    if rooms:
        from rigup.planner.memory.tensor_engines import place_tensor_engine

        return place_tensor_engine(candidate, rooms)
    from rigup.planner.memory.cpu import place_on_cpu

    return place_on_cpu(candidate)


def _too_many_sequences(candidate: Candidate, most: int) -> Shortfall:
    message = (
        f"--max-num-seqs {candidate.sequences} is more than the {most:,} states of {candidate.model.name} for which "
        "the KV cache has room, and vLLM does not start with more"
    )
    hint = f"set --max-num-seqs to at most {most * STATE_BLOCKS_TAKEN // 100:,}, or add --enforce-eager"
    return Shortfall(candidate, "sequences", 0, message, hint, _STATES_SOURCE)


def _too_many_requests(candidate: Candidate, held: int) -> Shortfall:
    message = (
        f"{candidate.checkpoint.label} on {candidate.engine.title}: the KV cache has room for the states of {held:,} "
        f"requests at once, but concurrency is {candidate.service.concurrency:,}"
    )
    return Shortfall(candidate, "sequences", 0, message, f"set concurrency to at most {held:,}", _STATES_SOURCE)


def _gpu_shortfall(candidate: Candidate, placement: Placement) -> Shortfall:
    missing = mib(placement.missing)
    what = f"{candidate.checkpoint.label} on {candidate.engine.title}"
    if candidate.draft is not None:
        what += f" with {candidate.draft.title}"
    if placement.kind == "weights":
        message = f"{what}: weights and engine need {missing:,} MiB more GPU memory"
    else:
        message = (
            f"{what}: {candidate.context * candidate.sequences_held:,} tokens of {candidate.kv_cache_type} KV cache "
            f"need {missing:,} MiB more GPU memory than the weights leave"
        )
    return Shortfall(candidate, placement.kind, missing, message)


def _host_shortfall(candidate: Candidate) -> Shortfall | None:
    """Host memory is checked where the rig declares it, or has to."""
    total = total_mib(candidate)
    if total is None:
        return None
    needed = max(needed_mib(candidate, rank) for rank in range(candidate.hosts))
    declared = candidate.rig.host_memory_gib
    kept = kept_for_system_mib(candidate, total)
    missing = needed - total + kept
    if missing <= 0:
        return None
    have = (
        f"the rig has {declared:g} GiB, of which {kept:,} MiB are reserved for the system"
        if declared
        else "the rig does not declare how much it has (rig.host_memory_gib)"
    )
    message = f"{candidate.checkpoint.label} needs {needed:,} MiB of host memory, but {have}"
    return Shortfall(candidate, "host", missing, message)
