"""An estimate of decode speed: a range, from bytes read and bandwidth. docs/speed.md says how far it is off.

The high end is an empty context with the best efficiencies that were measured, the low end the whole context
with the worst.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from rigup.attention.attention_class import Storage
from rigup.plan import Speed
from rigup.planner.candidate import Candidate, stage_ranks
from rigup.planner.memory.kv_cache import sequence_bytes
from rigup.planner.memory.weights import active_bytes, weights_of
from rigup.planner.moe_config import lacks_tuned_kernel
from rigup.service import EngineName
from rigup.units import GIB

UNTUNED = "no tuned expert kernel for this card and shape"


class _Efficiency(NamedTuple):
    """One end of the range. Bandwidths as parts of the card's; seconds for a step and for each of its sequences.

    host: part of the host memory's bandwidth if the rig declares it, else host_bytes_per_s applies.
    sglang_sequence_s: replaces sequence_s for SGLang. untuned: factor on `weights` without a tuned expert kernel.
    """

    weights: float
    cache: float
    step_s: float
    sequence_s: float
    sglang_sequence_s: float
    untuned: float
    host: float
    host_bytes_per_s: float
    host_flops_per_s: float
    filled: float


_HIGH = _Efficiency(0.9, 0.8, 0.005, 0.0, 50e-6, 1.0, 0.8, 60e9, 500e9, 0.0)
_LOW = _Efficiency(0.6, 0.5, 0.012, 50e-6, 150e-6, 0.5, 0.18, 20e9, 20e9, 1.0)


def decode_speed(candidate: Candidate, concurrency: int = 1, storage: Storage | None = None) -> Speed:
    """Estimated decode tokens per second of `concurrency` requests together.

    A tuned kernel that is known to be missing lowers the low end, and the note says so. storage: another KV cache than
    the candidate's, to compare speeds.
    """
    untuned, memory = lacks_tuned_kernel(candidate), candidate.rig.host_memory
    step = _llama_cpp_step if candidate.engine.name == "llama.cpp" else _tensor_engine_step
    ends = _ends(candidate.engine.name, untuned, memory.bandwidth_gbs if memory else None)
    kept = storage or candidate.storage
    low, high = (round(concurrency / step(candidate, kept, concurrency, end), 1) for end in ends)
    return Speed(low=low, high=high, note=UNTUNED if untuned else "")


@cache
def _ends(engine: EngineName, untuned: bool, host_gbs: float | None) -> tuple[_Efficiency, ...]:
    """Both ends of the range, adapted to the engine, the expert kernel and the host's memory."""
    return tuple(
        end._replace(
            weights=end.weights * (end.untuned if untuned else 1.0),
            sequence_s=end.sglang_sequence_s if engine == "sglang" else end.sequence_s,
            host_bytes_per_s=host_gbs * 1e9 * end.host if host_gbs else end.host_bytes_per_s,
        )
        for end in (_LOW, _HIGH)
    )


def _tensor_engine_step(candidate: Candidate, storage: Storage, concurrency: int, end: _Efficiency) -> float:
    """Ranks of a stage read side by side, at the pace of the slowest, stages one after the other.

    What vLLM has in host memory crosses PCIe for every token, of every rank from the same memory.
    """
    model, parallel = candidate.model, candidate.parallel
    sequences = max(1, concurrency // parallel.data)
    if not candidate.gpu_indices:
        return end.step_s + end.sequence_s * sequences + _host_step(candidate, storage, sequences, end)
    weights = active_bytes(candidate.checkpoint, model, sequences)
    tokens = min(candidate.context, candidate.kv_tokens // parallel.data / sequences) * end.filled
    cache = sequence_bytes(model, storage, int(tokens)) * sequences
    gpus = candidate.gpus
    shares = candidate.pipeline_partition or (model.layers,)
    seconds = end.step_s + end.sequence_s * sequences
    # Faster host memory does not help: PCIe is the narrower.
    over_pcie = min(end.host_bytes_per_s, _HIGH.host_bytes_per_s)
    for stage, layers in enumerate(shares):
        ranks = stage_ranks(parallel, stage)
        bandwidth = min(gpus[rank].memory_bandwidth_gbs for rank in ranks) * 1e9
        share, away = layers / model.layers, _offloaded(candidate, ranks[0])
        on_gpu = weights * (1 - away) / parallel.tensor
        seconds += share * (on_gpu / (end.weights * bandwidth) + cache / (end.cache * bandwidth))
        seconds += share * weights * away * parallel.data / over_pcie
    return seconds


def _offloaded(candidate: Candidate, rank: int) -> float:
    """The part of a rank's weights that lies in host memory (vLLM's --cpu-offload-gb)."""
    offload = candidate.cpu_offload_gib * GIB
    return offload / (candidate.usage[rank].weights + offload)


def _llama_cpp_step(candidate: Candidate, storage: Storage, sequences: int, end: _Efficiency) -> float:
    """GPUs work one after the other; experts on the host are read at the host's pace.

    GPUs that share each layer wait for one another instead: in public figures that comes to 0.77 to 1.25 times the
    same (llama.cpp#19378), which lies within this range.
    """
    model, storage = candidate.model, storage._replace(tensor=1)
    total = active_bytes(candidate.checkpoint, model, sequences)
    cache = sequence_bytes(model, storage, int(candidate.context * end.filled)) * sequences
    if not candidate.gpu_indices:
        return _host_step(candidate, storage, sequences, end)
    experts = weights_of(candidate.checkpoint, model).experts_on_host(candidate.host_expert_shares)
    touched = 1 - (1 - model.experts_per_token / candidate.experts) ** sequences if candidate.experts else 0.0
    on_host = experts * touched
    split = candidate.tensor_split or (1,) * len(candidate.gpus)
    seconds = end.step_s + end.sequence_s * sequences + on_host / end.host_bytes_per_s
    for gpu, layers in zip(candidate.gpus, split, strict=True):
        bandwidth, share = gpu.memory_bandwidth_gbs * 1e9, layers / sum(split)
        seconds += share * ((total - on_host) / (end.weights * bandwidth) + cache / (end.cache * bandwidth))
    return seconds


def _host_step(candidate: Candidate, storage: Storage, sequences: int, end: _Efficiency) -> float:
    """Everything is read from host memory and computed there."""
    model = candidate.model
    cache = sequence_bytes(model, storage, int(candidate.context * end.filled)) * sequences
    flops = 2.0 * model.active_parameters * sequences
    read = active_bytes(candidate.checkpoint, model, sequences) + cache
    return read / end.host_bytes_per_s + flops / end.host_flops_per_s
