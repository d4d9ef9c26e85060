"""What an engine takes of a GPU beside weights and KV cache, and of the host. The few calibrated constants are here.

Each constant is explained in docs/memory.md, with predicted against measured in accuracy.md; nothing else in rigup is
fitted to measurements.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rigup.catalogue.model import Model
from rigup.catalogue.runtimes import runtimes
from rigup.service import EngineName
from rigup.units import GIB, MIB

# Part of each GPU that a llama.cpp plan leaves free: the figures here are no better than that.
LLAMA_CPP_RESERVE = 0.01
# What a plan keeps free on each GPU beyond what it counts, MiB, wherever that is its own choice; less is warned of. A
# judgement: the largest errors of docs/accuracy.md are 864 MiB (KV cache of the verified vLLM row) and 0.8 GiB (fullest
# card of the RTX 3090 row), and llama-server's own --fit-target is 1,024 (b11434 --help).
MARGIN_MIB = 1024
# The same of a GPU that shares the host's memory, where the operating system needs some of it: assumed, not measured.
UNIFIED_MEMORY_RESERVE = 0.05
# NCCL between stages of one GPU each: what two ranks take beyond one before other buffers came (catalogue/runtimes).
_PIPELINE_NCCL = 450 * MIB
# NCCL of one llama-server on each GPU, between two and among more, MiB: NVIDIA/nccl#964, four A100 with NVLink after an
# all-reduce of 4 MiB each; its author says several hundred MB in llama.cpp#21746. Not measured with llama.cpp.
LLAMA_CPP_NCCL = (544 * MIB, 688 * MIB)
# What a server process takes of host memory before any weights: llama-server; one Python rank of vLLM or SGLang.
LLAMA_CPP_HOST = 300 * MIB
TENSOR_ENGINE_HOST = 5 * GIB


def tensor_engine_activations(model: Model, experts_cut: int, tensor: int, batched_tokens: int) -> float:
    """Bytes of activations that vLLM and SGLang need for one step of `batched_tokens`, in bf16, on one rank.

    experts_cut: into how many parts each expert is cut. Counts the two fused-MoE caches, q, k and v, and six
    residual streams.
    """
    moe = model.experts_per_token * (
        max(model.hidden, 2 * model.expert_intermediate // experts_cut) + model.expert_intermediate // experts_cut
    )
    dense = 3 * model.intermediate // tensor
    attention = max(entry.activations(tensor) for entry in model.attention)
    return 2.0 * batched_tokens * (max(moe, dense) + attention + 6 * model.hidden)


def sampler(engine: EngineName, version: str, model: Model, sequences: int) -> float:
    """Bytes that sampling for `sequences` requests needs on the ranks that hold the output head."""
    return runtimes()[engine].sampler_bytes(version) * sequences * model.vocab


class Runtime(NamedTuple):
    """Bytes of a GPU that an engine's process takes: before it loads weights, and after its caches have their size.

    reserve: what of `before` is the driver's own, which CUDA does not see; 0 where that is not known.
    """

    before: float
    after: float = 0.0
    reserve: float = 0.0

    @property
    def total(self) -> float:
        """Both."""
        return self.before + self.after


@lru_cache(maxsize=4096)
def standard_runtime(
    engine: EngineName, version: str, model: Model, joined: int, ranks: int, sequences: int, memory: float
) -> Runtime:
    """What is counted where a fleet has measured nothing else (catalogue/overheads/).

    joined: ranks that reduce together, which share layers or, in vLLM, experts. One log has data parallel ranks: eight
    B200 with DeepSeek V4 Flash (vllm-project/recipes#762) hold 3.5 % less than is left beside one rank's share, 1.2 %
    less than beside that of eight. ranks: all processes of a replica. sequences: of the largest batch with a CUDA
    graph, 0 for none. memory: bytes of the largest GPU.
    """
    figures = runtimes()[engine]
    kinds, experts = frozenset(entry.kind for entry in model.attention), model.experts > 0
    reserve = figures.reserve_bytes(memory)
    before = reserve + figures.process_bytes(version, kinds, experts, joined)
    if ranks > joined == 1:
        before += _PIPELINE_NCCL
    return Runtime(before, figures.graph_bytes(version, kinds, experts, joined, sequences), reserve)


def request_table(sequences: int, context: int) -> float:
    """Bytes of SGLang's table of where the tokens of each request lie, on every rank, and of a row for padding.

    Source: 0.5.23 mem_cache/memory_pool.py, ReqToTokenPool: int32.
    """
    return 4.0 * (sequences + 1) * context
