"""Which weights an engine version reads on which GPUs, and the cost if a card does not compute in the format."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.catalogue.engines import EngineVersion
from rigup.catalogue.versions import version_key
from rigup.planner.abilities import others_that, titles
from rigup.planner.candidate import Candidate
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns
from rigup.units import compute_capability

# Classes that took over checkpoints of a method that has no name of its own any more.
SUCCESSORS = {"auto-round": ("inc",)}
_CPU_FORMATS = ("bf16",)
SCHEME_NAMES = {
    name: name.upper() for name in ("gguf", "nvfp4", "mxfp4", "mxfp8", "bf16", "fp8", "int8", "int4", "int3", "int2")
}


@refuses("weight-format", "the engines' own loaders; GGUF on vLLM: vllm#33229, whose loader was removed in 0.24.0")
def weight_format(candidate: Candidate) -> Iterator[Complaint]:
    """The engine must be able to read the checkpoint's weights."""
    scheme = candidate.checkpoint.scheme
    if candidate.format_support is not None:
        return
    if scheme == "gguf":
        yield f"{engine_name(candidate)} cannot serve {candidate.model.name} from GGUF", "GGUF is llama.cpp's format"
    elif candidate.engine.name == "llama.cpp":
        yield f"llama.cpp cannot read {_format(scheme)} safetensors", "use a GGUF checkpoint, or vLLM or SGLang"
    else:
        yield f"{engine_name(candidate)} cannot read {_format(scheme)}", "use a later version or another checkpoint"


@refuses("mistral-format", "the engines' own readers of params.json; mistral_format of the engine's file names them")
def mistral_format(candidate: Candidate) -> Iterator[Complaint]:
    """The engine must read Mistral's own format, and SGLang reads it of the repositories alone whose names it knows."""
    known = candidate.release.mistral_format
    if candidate.release.reads_format(candidate.checkpoint):
        return
    if known is None:
        yield (
            f"{candidate.checkpoint.label} is in Mistral's own format, which {engine_name(candidate)} does not read",
            "use vLLM, or a checkpoint in another format",
        )
    else:
        yield (
            f"{engine_name(candidate)} reads Mistral's own format only of repositories with a name like "
            f"{', '.join(known.names)}; this is {candidate.checkpoint.repo}",
            "use vLLM, or a checkpoint in transformers' format",
        )


@refuses("quantisation-method", "the registry of quantisations in the engine's own package, per version")
def quantisation_method(candidate: Candidate) -> Iterator[Complaint]:
    """The engine version must have the checkpoint's method of quantisation."""
    method, release = candidate.checkpoint.method, candidate.release
    if not method or candidate.engine.name == "llama.cpp" or not release.abilities.read or _has(release, method):
        return
    having = others_that(
        release, candidate.catalogue.engines, lambda other: other.abilities.read and _has(other, method)
    )
    yield (
        f"{engine_name(candidate)} has no quantisation `{method}`{titles(having)}",
        "use such a release or another checkpoint" if having else "use another checkpoint",
    )


def _has(release: EngineVersion, method: str) -> bool:
    return any(release.abilities.has("quantizations", name) for name in (method, *SUCCESSORS.get(method, ())))


@refuses("compute-capability", "get_min_capability of each quantisation in the engine's wheel, per version")
def minimum_capability(candidate: Candidate) -> Iterator[Complaint]:
    """Every GPU must have the compute capability that the engine requires for the weights' format."""
    support = candidate.format_support
    lacking = {known for known in candidate.capabilities if support and not support.runs_on(known)}
    if support and lacking:
        yield (
            f"{engine_name(candidate)} needs compute capability {support.minimum} for "
            f"{_format(candidate.checkpoint.scheme)}; {_cards(candidate, lacking)}",
            "use a checkpoint in a format that these GPUs support, or another engine",
        )


@refuses("cuda-compute-capability", "docs.nvidia.com/deploy/cuda-compatibility and the CUDA 13 release notes")
def cuda_capability(candidate: Candidate) -> Iterator[Complaint]:
    """The CUDA version that the engine is built with must still support every GPU."""
    needs = candidate.release.cuda_needs
    if needs is None:
        return
    floor = compute_capability(needs.compute_capability)
    lacking = {known for known in candidate.capabilities if compute_capability(known) < floor}
    if lacking:
        yield (
            f"CUDA {candidate.release.cuda} needs compute capability {needs.compute_capability} or higher; "
            f"{_cards(candidate, lacking)}",
            "use a version built with an older CUDA",
        )


@warns("format-fallback", "capability checks and Marlin fallbacks in the engine's wheel, per version")
def format_fallback(candidate: Candidate) -> Iterator[Complaint]:
    """Weights in a format that the cards cannot compute in are converted on the fly."""
    support = candidate.format_support
    converted = {known for known in candidate.capabilities if support and not support.native_on(known)}
    if support and support.fallback and converted and not any(minimum_capability(candidate)):
        scheme = _format(candidate.checkpoint.scheme)
        yield f"{scheme} is not native here: {support.fallback} ({_cards(candidate, converted)})", ""


@warns("checkpoint-version", "the catalogue's minimum_versions of the checkpoint, each with its own source")
def checkpoint_version(candidate: Candidate) -> Iterator[Complaint]:
    """A version older than the recommended one may serve a checkpoint if it has the architecture."""
    checkpoint = candidate.checkpoint
    oldest = (checkpoint.minimum_versions or {}).get(candidate.engine.name)
    if oldest is not None and candidate.release.key < version_key(oldest):
        yield (
            f"{engine_name(candidate)} is older than {oldest}, which is recommended for {checkpoint.repo}",
            f"set version to {oldest}",
            checkpoint.sources.get("minimum_versions", checkpoint_version.source),
        )


@refuses("cpu-format", "vLLM 0.32.0 on a CPU was tested with BF16 only")
def cpu_format(candidate: Candidate) -> Iterator[Complaint]:
    """An engine's CPU build serves weights and KV cache in BF16 only."""
    if candidate.gpus or candidate.engine.name == "llama.cpp":
        return
    for what, kind in (("weights", candidate.checkpoint.scheme), ("a KV cache", candidate.kv_cache_type)):
        if kind.partition("_")[0] not in _CPU_FORMATS:
            message = f"{engine_name(candidate)} on a CPU serves {what} in BF16, not {kind}"
            yield message, "use llama.cpp, which serves GGUF on CPUs"


def _format(scheme: str) -> str:
    return SCHEME_NAMES.get(scheme.partition("_")[0], scheme)


def _cards(candidate: Candidate, capabilities: set[str]) -> str:
    """The GPUs of these compute capabilities, each kind once."""
    kinds = dict.fromkeys((gpu.name, gpu.compute_capability) for gpu in candidate.gpus)
    return ", ".join(f"{name} has {capability}" for name, capability in kinds if capability in capabilities)
