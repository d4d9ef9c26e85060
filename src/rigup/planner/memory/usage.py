"""What the memory models of the engines hand back, in bytes."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rigup.plan import HostParts
from rigup.planner.candidate import Candidate, GpuUsage
from rigup.units import GIB, MIB


class Placement(NamedTuple):
    """Where everything lies, or how many bytes are `missing` and of which `kind`; then the rest means nothing.

    gpus: in the order of Candidate.gpu_indices. host: bytes of host memory; peer: of each host of the service but the
    head. host_parts: of a host without GPUs that serves alone. cache_spare: bytes for KV cache that the poorest GPU has
    beyond one request's context; of vLLM and SGLang. most_sequences: with more at once the engine does not start; 0 for
    no bound. The other fields are Candidate's.
    """

    gpus: tuple[GpuUsage, ...] = ()
    host: float = 0.0
    peer: float = 0.0
    host_parts: HostParts | None = None
    kv_tokens: int = 0
    cache_spare: float = 0.0
    most_sequences: int = 0
    memory_fraction: float = 0.0
    pipeline_partition: tuple[int, ...] = ()
    tensor_split: tuple[int, ...] = ()
    remote_layers: int = 0
    missing: float = 0.0
    kind: Literal["weights", "context"] = "weights"


def capacities(candidate: Candidate) -> list[float | None]:
    """Bytes that each used GPU has.

    GPUs without memory of their own share the host's; None if the rig does not declare it.
    """
    declared = candidate.rig.host_memory_gib
    sharing = sum(gpu.memory_mib is None for gpu in candidate.gpus) // candidate.hosts
    shared = declared * GIB / sharing if declared and sharing else None
    return [shared if gpu.memory_mib is None else float(gpu.memory_mib * MIB) for gpu in candidate.gpus]
