"""What people measured, as published, for the planner to be held against. Sources stand beside each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rigup.planner.candidate import Candidate
from rigup.planner.memory.kv_cache import token_bytes
from rigup.units import GIB, MIB
from tests.unit.planner.asking import FP8, NVFP4, PRO_6000

RTX_3090_CARDS_GIB = (23.4, 21.7, 23.1, 22.0)
LLAMA_CPP_LOG = "log of llama.cpp, 65,536 tokens of MiniMax-M2.5 in f16"


@dataclass(frozen=True)
class MeasuredMemory:
    """One published figure and where the planner has its own. `verified` rows were reproduced by arithmetic."""

    what: str
    gpus: object
    service: dict[str, Any]
    unit: str
    measured: float
    predicted: Callable[[Candidate], float]
    source: str
    verified: bool = False


def used_gib(candidate: Candidate) -> float:
    """All GPUs together."""
    return sum(row.capacity_mib - row.free_mib for row in candidate.memory) / 1024


def fullest_gib(candidate: Candidate) -> float:
    """The GPU that is used most."""
    return max(row.capacity_mib - row.free_mib for row in candidate.memory) / 1024


def weights_gib(candidate: Candidate) -> float:
    """On the first GPU."""
    return candidate.memory[0].weights_mib / 1024


def filled_gib(candidate: Candidate) -> float:
    """Weights and KV cache on the first GPU."""
    return weights_gib(candidate) + candidate.memory[0].kv_cache_mib / 1024


_FOUR_FP8 = {"checkpoint": FP8, "engine": "vllm", "version": "0.20.2", "tensor_parallel": 4}
_RTX6K = "rtx6kpro, models/minimax-m25.md"
MEMORY = (
    MeasuredMemory(
        "4x RTX PRO 6000, FP8, vLLM TP4: weights on a GPU",
        f"4x {PRO_6000}",
        _FOUR_FP8,
        "GiB",
        53.75,
        weights_gib,
        _RTX6K,
        True,
    ),
    MeasuredMemory(
        "the same: weights and KV cache on a GPU",
        f"4x {PRO_6000}",
        _FOUR_FP8,
        "GiB",
        53.75 + 23.62,
        filled_gib,
        _RTX6K,
        True,
    ),
    MeasuredMemory(
        "the same: tokens in the KV cache",
        f"4x {PRO_6000}",
        _FOUR_FP8,
        "tokens",
        399_424,
        lambda c: c.kv_tokens,
        _RTX6K,
        True,
    ),
    MeasuredMemory(
        "8x H200, FP8, vLLM TP8 EP8: tokens in the KV cache",
        "8x H200",
        {**_FOUR_FP8, "tensor_parallel": 8},
        "tokens",
        3_000_000,
        lambda c: c.kv_tokens,
        "MiniMax, vllm_deploy_guide.md: 8 GPUs of 144 GB hold 3M tokens",
    ),
    MeasuredMemory(
        "4x RTX 3090, UD-IQ2_M, llama.cpp, 65,536 tokens of q8_0: all GPUs",
        "4x RTX 3090",
        {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M", "context": 65536, "kv_cache_type": "q8_0"},
        "GiB",
        sum(RTX_3090_CARDS_GIB),
        used_gib,
        "report of a 4x RTX 3090 build",
    ),
    MeasuredMemory(
        "the same: the fullest GPU",
        "4x RTX 3090",
        {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M", "context": 65536, "kv_cache_type": "q8_0"},
        "GiB",
        max(RTX_3090_CARDS_GIB),
        fullest_gib,
        "report of a 4x RTX 3090 build",
    ),
    MeasuredMemory(
        "2x RTX PRO 6000, NVFP4, vLLM TP2 at 0.90: used on a GPU",
        f"2x {PRO_6000}",
        {"checkpoint": NVFP4, "engine": "vllm", "tensor_parallel": 2, "kv_cache_type": "fp8"},
        "MiB",
        88_500,
        lambda c: c.memory[0].capacity_mib - c.memory[0].free_mib,
        "rtx6kpro: 88 to 89 thousand MiB each",
    ),
    MeasuredMemory(
        "MiniMax-M2.5, 65,536 tokens of f16 KV cache",
        "8x RTX 3090",
        {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 65536, "kv_cache_type": "f16"},
        "MiB",
        15_872,
        lambda c: token_bytes(c.model, c.storage) * 65536 / MIB,
        LLAMA_CPP_LOG,
        True,
    ),
    MeasuredMemory(
        "MiniMax-M2.5, 196,608 tokens of q4_0 KV cache",
        "8x RTX 3090",
        {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 196608, "kv_cache_type": "q4_0"},
        "GiB",
        13.0,
        lambda c: token_bytes(c.model, c.storage) * 196608 / GIB,
        "growth of a Strix Halo's memory",
    ),
)


@dataclass(frozen=True)
class MeasuredSpeed:
    """Decode tokens per second as published, of `concurrency` requests together."""

    what: str
    gpus: object
    service: dict[str, Any]
    measured: float
    concurrency: int = 1
    host_memory_gib: float | None = None
    host_memory: str | None = None
    source: str = field(default=_RTX6K)

    @property
    def tokens(self) -> int:
        """In the cache of each request: the context that the service was planned with."""
        return int(self.service["context"])


def _b200(concurrency: int, measured: float) -> MeasuredSpeed:
    service = {"checkpoint": FP8, "engine": "vllm", "tensor_parallel": 4, "context": 2560, "concurrency": concurrency}
    what = f"4x B200, FP8, vLLM TP4, 2,560 tokens, {concurrency} at once"
    return MeasuredSpeed(what, "4x B200", service, measured, concurrency, source="report of a 4x B200 benchmark")


def _sglang(gpus: str, concurrency: int, measured: float) -> MeasuredSpeed:
    """Output tokens of prompts and answers of up to 1,000 tokens each, so that prompts are in the time too."""
    service = {"checkpoint": FP8, "engine": "sglang", "tensor_parallel": 8, "expert_parallel": True, "context": 2048}
    what = f"8x {gpus}, FP8, SGLang TP8 EP8, 2,048 tokens, {concurrency} at once"
    source = "SGLang cookbook, MiniMax-M2.5"
    return MeasuredSpeed(
        what, f"8x {gpus}", {**service, "concurrency": concurrency}, measured, concurrency, source=source
    )


def _pro_6000(what: str, gpus: int, service: dict[str, Any], measured: float, concurrency: int = 1) -> MeasuredSpeed:
    return MeasuredSpeed(f"{gpus}x RTX PRO 6000, {what}", f"{gpus}x {PRO_6000}", service, measured, concurrency)


_AWQ = {"checkpoint": "mratsim/MiniMax-M2.5-BF16-INT4-AWQ", "engine": "vllm", "tensor_parallel": 2}
_TWO_NVFP4 = {"checkpoint": NVFP4, "engine": "vllm", "tensor_parallel": 2, "kv_cache_type": "fp8"}
_FOUR_NVFP4 = {"checkpoint": NVFP4, "engine": "vllm", "tensor_parallel": 4, "context": 4096, "concurrency": 64}
_EIGHT_MAX_Q = {"checkpoint": FP8, "engine": "sglang", "tensor_parallel": 8, "context": 4096}
_REAP = {"checkpoint": "lukealonso/MiniMax-M2.5-REAP-139B-A10B-NVFP4"}
SPEED = (
    *(_b200(n, v) for n, v in ((1, 87), (8, 581), (16, 1057), (32, 1636), (64, 2591), (128, 3943))),
    *(_sglang("B200", n, v) for n, v in ((1, 98.17), (16, 842.49), (100, 2737.02))),
    *(_sglang("H100 80GB HBM3", n, v) for n, v in ((1, 119.08), (16, 934.22), (100, 3133.56))),
    _pro_6000("FP8, vLLM TP4, 20,000 tokens", 4, {**_FOUR_FP8, "context": 20000}, 81),
    _pro_6000("FP8, vLLM TP4, 100,000 tokens", 4, {**_FOUR_FP8, "context": 100000}, 61),
    _pro_6000(
        "FP8, vLLM TP4, 25,000 tokens, 10 at once", 4, {**_FOUR_FP8, "context": 25000, "concurrency": 10}, 355, 10
    ),
    _pro_6000("FP8, SGLang TP4, 4,096 tokens", 4, {**_EIGHT_MAX_Q, "tensor_parallel": 4}, 71),
    _pro_6000("FP8, vLLM TP4, 25,000 tokens", 4, {**_FOUR_FP8, "context": 25000}, 78),
    _pro_6000("NVFP4, vLLM TP2, 4,096 tokens of fp8", 2, {**_TWO_NVFP4, "context": 4096}, 85),
    _pro_6000("NVFP4, SGLang TP2, 4,096 tokens of fp8", 2, {**_TWO_NVFP4, "engine": "sglang", "context": 4096}, 87),
    _pro_6000("NVFP4, vLLM TP4, 4,096 tokens, 64 at once", 4, _FOUR_NVFP4, 1558, 64),
    _pro_6000("NVFP4, vLLM TP2, 20,000 tokens of fp8", 2, {**_TWO_NVFP4, "context": 20000}, 90),
    _pro_6000("NVFP4, vLLM TP2, 100,000 tokens of fp8", 2, {**_TWO_NVFP4, "context": 100000}, 60),
    _pro_6000("AWQ INT4, vLLM TP2, 4,096 tokens", 2, {**_AWQ, "context": 4096}, 114),
    _pro_6000("AWQ INT4, vLLM TP2, 130,000 tokens", 2, {**_AWQ, "context": 130000}, 50),
    _pro_6000("AWQ INT4, vLLM TP2, 4,096 tokens, 64 at once", 2, {**_AWQ, "context": 4096, "concurrency": 64}, 930, 64),
    _pro_6000("REAP NVFP4, SGLang, 4,096 tokens", 1, {**_REAP, "engine": "sglang", "context": 4096}, 70),
    MeasuredSpeed(
        "8x RTX PRO 6000 Max-Q, FP8, SGLang TP8 EP8, 4,096 tokens", "8x RTX PRO 6000 Max-Q", _EIGHT_MAX_Q, 86
    ),
    MeasuredSpeed(
        "1x GB10, REAP NVFP4, vLLM, 2,048 tokens",
        "GB10",
        {**_REAP, "engine": "vllm", "context": 2048},
        16.7,
        host_memory_gib=119,
        source="NVIDIA developer forum, DGX Spark",
    ),
    MeasuredSpeed(
        "4x RTX 3090, UD-IQ2_M, llama.cpp, 4,096 tokens",
        "4x RTX 3090",
        {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M", "context": 4096},
        76.5,
        source="report of a 4x RTX 3090 build",
    ),
    MeasuredSpeed(
        "2x RTX 3090, Q4_K_M, llama.cpp with experts in host memory, 4,096 tokens",
        "2x RTX 3090",
        {"model": "MiniMax-M2.5", "quant": "Q4_K_M", "context": 4096},
        12.9,
        host_memory_gib=192,
        source="ai-manual.ru",
    ),
    MeasuredSpeed(
        # The card was an RTX 4090 D of 48 GB, which has 5 % more bandwidth than the one that it is planned with.
        "RTX 6000 Ada + RTX 3090, 8x DDR5-4800, UD-Q4_K_XL, llama.cpp with experts in host memory, 65,536 tokens",
        ["RTX 6000 Ada", "RTX 3090"],
        {"model": "MiniMax-M2.1", "quant": "UD-Q4_K_XL", "context": 65536},
        20.05,
        host_memory_gib=256,
        host_memory="8x DDR5-4800",
        source="unsloth/MiniMax-M2.1-GGUF, discussion 2 (RTX 4090 D 48 GB)",
    ),
)
