"""A candidate: everything that a rule or a renderer needs to know about one way of serving a service."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rigup.attention.attention_class import Storage
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.engine_facts import FormatSupport, OwnCacheType
from rigup.catalogue.model import Model
from rigup.catalogue.option_names import PARSER_OPTIONS, known_options, known_values, known_variables
from rigup.catalogue.overheads import MeasuredOverhead, measured_overhead
from rigup.plan import GpuMemory, HostParts, Parallel
from rigup.planner.drafting.draft import Draft
from rigup.planner.engine_memory import Attempt
from rigup.planner.memory.overhead import MARGIN_MIB, Runtime, standard_runtime
from rigup.rig import Gpu, Rig
from rigup.service import BuildMethod, Service
from rigup.units import MIB

if TYPE_CHECKING:
    from rigup.catalogue.catalogue import Catalogue
    from rigup.catalogue.engines import Engine, EngineVersion
    from rigup.catalogue.option_names import NameList


class GpuUsage(NamedTuple):
    """Bytes on one GPU, of `capacity` bytes."""

    capacity: float
    weights: float
    kv_cache: float
    overhead: float

    def row(self, gpu: int) -> GpuMemory:
        """The usage in MiB. Used parts are rounded up, so that the four parts add up to the capacity."""
        return GpuMemory(
            gpu=gpu,
            capacity_mib=int(self.capacity // MIB),
            weights_mib=mib(self.weights),
            kv_cache_mib=mib(self.kv_cache),
            overhead_mib=mib(self.overhead),
            free_mib=self.free_mib,
        )

    @property
    def free_mib(self) -> int:
        """Free MiB; negative if the candidate does not fit."""
        return int(self.capacity // MIB) - mib(self.weights) - mib(self.kv_cache) - mib(self.overhead)


def mib(count: float) -> int:
    """Bytes to MiB, rounded up, because all of it must be available."""
    return math.ceil(count / MIB)


def expert_ranks(engine: str, tensor: int, data: int) -> int:
    """How many GPUs share the experts of a layer: in vLLM also data parallel ranks; SGLang's replicas have all experts.

    Source: SGLang 0.5.23 runtime_context.py: moe_tp_size is tp_size // moe_ep_size, so --ep-size cannot exceed
    --tp-size.
    """
    return tensor * (data if engine == "vllm" else 1)


def stage_ranks(parallel: Parallel, stage: int) -> list[int]:
    """The ranks of one pipeline stage in every replica; ranks are ordered by data, then pipeline, then tensor."""
    firsts = [(replica * parallel.pipeline + stage) * parallel.tensor for replica in range(parallel.data)]
    return [first + rank for first in firsts for rank in range(parallel.tensor)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve `service` on `rig`. It follows the user's settings and decides what the user left open.

    gpu_indices: the GPUs used, in the order of ranks or, for llama.cpp, of its devices; empty on a CPU-only rig.
    For a service across hosts, indices continue from host to host: index % len(rig.gpus) is the one in rig.gpus.
    smallest_bytes: of the model's smallest checkpoint that is known.
    catalogue: everything that is known, with the fleet's own tuned kernels, measurements and figures.
    engine, release: the engine's facts and one of its versions. build: how the host gets it.
    context: tokens per request. kv_cache_type: never "auto": f16, bf16, fp8, q8_0, q5_1 or q4_0.
    sequences: concurrent requests (--max-num-seqs, --max-running-requests, --parallel).
    batched_tokens: prompt tokens in one step (--max-num-batched-tokens, --chunked-prefill-size, --ubatch-size).
    memory_fraction: vLLM's --gpu-memory-utilization, SGLang's --mem-fraction-static; 0 for llama.cpp.
    attempts: what to try in this order; the first is the engine's default.
    fraction_given: whether the service's flags fix memory_fraction.
    eager: the service turns CUDA graphs off.
    pipeline_partition: layers of each pipeline stage, which add up to the model's; () without pipeline parallelism.
    asked_partition: the partition in the service's environment, () if none.
    tensor_split: llama.cpp's --tensor-split: layers on each GPU, the output counted as one; () on fewer than two GPUs.
    remote_layers: layers that llama.cpp puts on other hosts if no host has a GPU, the output counted as one.
    cpu_moe_layers: llama.cpp's --n-cpu-moe. expert_overrides: the part of each layer's experts that the service's own
    --override-tensor keeps on the host; () without. cpu_offload_gib: vLLM's --cpu-offload-gb, for each GPU.
    triton: the locked version of Triton, None if unknown.
    names: options and variables from the locked wheel itself; None if the catalogue's lists apply to it.
    driver_locked: whether the lock pins the rig's driver, which is then compared with what this candidate needs.
    usage, kv_tokens, host_memory_mib, host_parts: results of `rigup.planner.memory.fit`; empty and 0 before that.
    free_mib: the least that a GPU has free then; None without GPUs and before that.
    cache_spare_mib: memory of vLLM and SGLang for KV cache beyond one request's context, on the GPU with the least.
    Other stages do not use more, because every stage holds the same number of tokens.
    peer_memory_mib: host memory of each worker.
    draft: what drafts tokens for it; None for nothing.
    prompt_cache_mib: llama-server's --cache-ram, a part of host_memory_mib; None for other engines.
    """

    rig: Rig
    service: Service
    catalogue: Catalogue
    gpu_indices: tuple[int, ...]
    model: Model
    checkpoint: CheckpointEntry
    engine: Engine
    release: EngineVersion
    build: BuildMethod
    parallel: Parallel
    context: int
    kv_cache_type: str
    sequences: int = 1
    batched_tokens: int = 512
    memory_fraction: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    fraction_given: bool = False
    eager: bool = False
    pipeline_partition: tuple[int, ...] = ()
    tensor_split: tuple[int, ...] = ()
    remote_layers: int = 0
    asked_partition: tuple[int, ...] = ()
    cpu_moe_layers: int = 0
    expert_overrides: tuple[float, ...] = ()
    cpu_offload_gib: int = 0
    draft: Draft | None = None
    smallest_bytes: int = 0
    triton: str | None = None
    names: NameList | None = None
    driver_locked: bool = False
    usage: tuple[GpuUsage, ...] = ()
    free_mib: int | None = None
    kv_tokens: int = 0
    cache_spare_mib: int = 0
    host_memory_mib: int = 0
    host_parts: HostParts | None = None
    peer_memory_mib: int = 0
    prompt_cache_mib: int | None = None

    @property
    def architecture(self) -> str | None:
        """What the engine calls the architecture of the checkpoint; None if nobody knows."""
        return self.release.architecture_of(self.model, self.checkpoint)

    @property
    def own_cache_type(self) -> OwnCacheType | None:
        """The KV cache type that the engine takes by itself; None for the model's own."""
        return self.release.own_cache_type(self.architecture, self.gpus)

    @property
    def format_support(self) -> FormatSupport | None:
        """How the engine reads the checkpoint's weights; None if it cannot."""
        return self.release.support(self.checkpoint.scheme, self.checkpoint.method)

    @property
    def storage(self) -> Storage:
        """What its KV cache is kept in. llama.cpp puts whole layers on a GPU, so that one rank has each."""
        release = self.release
        unscaled = bool(release.unscaled_caches) and release.is_unscaled(self.architecture, self.capabilities)
        return Storage(self.engine.name, self.kv_cache_type, self.parallel.tensor, unscaled)

    @property
    def hosts(self) -> int:
        """How many hosts the service spans."""
        return self.rig.hosts_per_service

    @property
    def memory(self) -> tuple[GpuMemory, ...]:
        """The memory of each GPU of the only host, or of the head; empty before the memory is computed."""
        return self.memory_of(0)

    def memory_of(self, rank: int) -> tuple[GpuMemory, ...]:
        """The memory of each GPU on the host of a rank."""
        used = zip(self.gpu_indices, self.usage, strict=False)
        each = len(self.rig.gpus)
        return tuple(use.row(index % each) for index, use in used if index // each == rank)

    def host_memory_of(self, rank: int) -> int:
        """MiB of main memory that one host needs."""
        return self.peer_memory_mib if rank else self.host_memory_mib

    @property
    def local_gpus(self) -> tuple[int, ...]:
        """The GPUs used on each host, as indices into rig.gpus."""
        return tuple(index for index in self.gpu_indices if index < len(self.rig.gpus))

    @property
    def has_smaller(self) -> bool:
        """Whether a smaller quantisation of the model is known."""
        return 0 < self.smallest_bytes < self.checkpoint.bytes

    @property
    def measured_overheads(self) -> dict[str, MeasuredOverhead | None]:
        """Maps GPU name to the fleet's measurement for exactly this candidate; None without a measurement."""
        known, gpus = self.catalogue.overheads, len(self.local_gpus)
        return {
            gpu.name: measured_overhead(known, self.engine.name, self.version, gpu.name, gpus, self.parallel)
            for gpu in self.gpus
        }

    @property
    def runtime(self) -> Runtime:
        """What the engine's own process needs on each GPU: the maximum over the kinds of GPU.

        All of what a fleet has measured is counted as taken before the weights.

        A graph of a step that verifies drafts has a token more of each request for each drafted one (vLLM 0.32.0
        config/vllm.py: uniform_decode_query_len).
        """
        memory = [gpu.memory_mib or (self.rig.host_memory_gib or 0.0) * 1024 for gpu in self.gpus]
        verified = 1 + (self.draft.tokens if self.draft else 0)
        parallel, sequences = self.parallel, 0 if self.eager else self.sequences * verified
        joined = expert_ranks(self.engine.name, parallel.tensor, parallel.data if self.model.experts else 1)
        standard = standard_runtime(
            self.engine.name,
            self.version,
            self.model,
            joined,
            joined * parallel.pipeline,
            sequences,
            max(memory, default=0.0) * MIB,
        )
        measured = self.measured_overheads.values() if self.catalogue.overheads else ()
        known = (Runtime(found.runtime_mib * MIB) if found else standard for found in measured)
        return max(known, default=standard, key=lambda one: one.total)

    @property
    def version(self) -> str:
        """The engine's version, in the form that users write."""
        return self.release.version

    @property
    def served_name(self) -> str:
        """The model's name in requests: the user's choice, or the model's own in lower case."""
        return self.service.served_name or self.model.name.lower()

    @property
    def known_options(self) -> frozenset[str]:
        """Every option that the build's server accepts."""
        return self.names.options if self.names else known_options(self.engine.name, self.version)

    @property
    def known_variables(self) -> frozenset[str]:
        """Every environment variable of the engine that the build reads."""
        return self.names.variables if self.names else known_variables(self.engine.name, self.version)

    def known_values(self, option: str) -> frozenset[str]:
        """The values that an option with fixed choices accepts; empty if the choice is open or unknown."""
        known, kind = known_values(self.engine.name, self.version, option), PARSER_OPTIONS.get(option)
        return known | self.release.abilities.names(kind) if kind else known

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs used on all hosts, in order."""
        known = self.rig.gpus
        return tuple([known[index % len(known)] for index in self.gpu_indices])

    @property
    def capabilities(self) -> frozenset[str]:
        """The compute capabilities of the GPUs used."""
        return frozenset({gpu.compute_capability for gpu in self.gpus})

    @property
    def host_expert_shares(self) -> tuple[float, ...]:
        """The part of each layer's experts that llama.cpp keeps in host memory, layer by layer."""
        first = (1.0,) * self.cpu_moe_layers + (0.0,) * (self.model.layers - self.cpu_moe_layers)
        if not self.expert_overrides:
            return first
        return tuple(max(pair) for pair in zip(first, self.expert_overrides, strict=True))

    @property
    def offloads_experts(self) -> bool:
        """Whether llama.cpp keeps experts in host memory that belong to a GPU."""
        return self.cpu_moe_layers > 0 or any(self.expert_overrides)

    @property
    def copies_experts(self) -> bool:
        """Whether llama.cpp copies experts in host memory to the first GPU for longer prompts."""
        shared = any(gpu.unified_memory for gpu in self.gpus[:1])
        return self.offloads_experts and not shared and not self.service.flags.get("--no-op-offload")

    @property
    def experts(self) -> int:
        """Experts per layer in this checkpoint, after pruning; 0 for a dense model."""
        return self.checkpoint.experts or self.model.experts

    @property
    def sequences_held(self) -> int:
        """Requests whose whole context the KV cache must hold: every slot in llama.cpp, one in other engines."""
        return self.sequences if self.engine.name == "llama.cpp" else 1

    @property
    def expert_shards(self) -> int:
        """The number of parts that each expert's matrices are split into; 1 if the GPUs hold whole experts."""
        if self.parallel.expert > 1:
            return 1
        return expert_ranks(self.engine.name, self.parallel.tensor, self.parallel.data)

    @property
    def longest_context(self) -> int:
        """Tokens that it supports, and a smaller model that drafts for it: vLLM serves no more than that has."""
        smaller = self.draft.model if self.draft and self.draft.kind == "draft" else None
        return min(self.own_context, smaller.context) if smaller else self.own_context

    @property
    def own_context(self) -> int:
        """Tokens that the model supports, or the configuration of this checkpoint if that allows fewer."""
        return min(self.checkpoint.context or self.model.context, self.model.context)

    @property
    def margin_mib(self) -> int | None:
        """MiB by which the estimate may be too low on the tightest GPU before the engine fails to start.

        vLLM fails if one request's context does not fit into the KV cache, llama.cpp if the GPU is full, and SGLang
        in both cases. None without GPUs and before the memory is computed.
        """
        if self.free_mib is None or self.engine.name == "llama.cpp":
            return self.free_mib
        return self.cache_spare_mib if self.engine.name == "vllm" else min(self.free_mib, self.cache_spare_mib)

    @property
    def is_tight(self) -> bool:
        """Whether the candidate only fits if the estimate is better than its known error."""
        margin = self.margin_mib
        return margin is not None and margin < MARGIN_MIB
