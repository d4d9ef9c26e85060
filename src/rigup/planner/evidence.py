"""The figures that a decision rests on, each with its source, for `--explain`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from rigup.catalogue import buffers
from rigup.catalogue.driver_versions import nvidia_versions
from rigup.catalogue.quality import quality_of
from rigup.plan import DriverPlan, Evidence
from rigup.planner.candidate import Candidate, mib
from rigup.planner.choice import reach
from rigup.planner.kernels import planned_kernels, source_of
from rigup.planner.memory.kv_cache import token_bytes
from rigup.planner.memory.loading import built_in_bytes, draft_attention, draft_of
from rigup.planner.memory.weights import active_bytes
from rigup.units import bytes_text

_UNSOURCED = "catalogue"

Figure = tuple[str, str, str, str]
"""The fields of `Evidence`: subject, figure, value, source."""


def evidence_of(candidate: Candidate, driver: DriverPlan | None) -> tuple[Evidence, ...]:
    """Figures about the GPUs, the model, the checkpoint, what drafts, the engine with its KV cache, and the driver's
    branch, in that order.
    """
    figures = chain(
        _gpu_figures(candidate),
        _model_figures(candidate),
        _checkpoint_figures(candidate),
        _draft_figures(candidate),
        _engine_figures(candidate),
        _branch_figures(driver),
    )
    return tuple(
        Evidence(subject=subject, figure=figure, value=value, source=source)
        for subject, figure, value, source in figures
    )


def _gpu_figures(candidate: Candidate) -> Iterator[Figure]:
    for gpu in {gpu.key: gpu for gpu in candidate.gpus}.values():
        memory = f"{gpu.memory_mib:,} MiB" if gpu.memory_mib else "the host's"
        yield gpu.name, "memory", memory, gpu.sources.get("memory_mib") or gpu.sources.get("unified_memory", _UNSOURCED)
        bandwidth = f"{gpu.memory_bandwidth_gbs:,.0f} GB/s"
        yield gpu.name, "memory bandwidth", bandwidth, gpu.sources.get("memory_bandwidth_gbs", _UNSOURCED)


def _model_figures(candidate: Candidate) -> Iterator[Figure]:
    model = candidate.model
    for figure, value, field in (
        ("shape", model.attention_shape, "layers"),
        ("parameters", f"{candidate.checkpoint.parameters or model.parameters:,}", "parameters"),
        ("context", f"{model.context:,} tokens", "context"),
        ("licence", model.license, "license"),
        ("parsers", _parsers(candidate), "parsers"),
        *(
            (f"template flag {name}", ", ".join(values), "template_flags")
            for name, values in model.template_flags.items()
        ),
        *(("note", note, "notes") for note in model.notes),
    ):
        if value:
            yield model.name, figure, value, model.sources.get(field) or model.sources.get("layers", _UNSOURCED)


def _parsers(candidate: Candidate) -> str:
    """The parsers that the service asks for: "tool calls hermes, reasoning qwen3"."""
    service, there = candidate.service, candidate.release.parsers_of(candidate.model)
    asked = (("tool calls", service.tools, there.tool), ("reasoning", service.reasoning, there.reasoning))
    return ", ".join(f"{words} {names[0]}" for words, wanted, names in asked if wanted and names)


def _checkpoint_figures(candidate: Candidate) -> Iterator[Figure]:
    checkpoint, model = candidate.checkpoint, candidate.model
    size = bytes_text(checkpoint.bytes) + ("" if checkpoint.bytes_exact else " (not exact)")
    yield checkpoint.label, "size", size, checkpoint.sources.get("bytes", _UNSOURCED)
    read = bytes_text(active_bytes(checkpoint, model))
    yield checkpoint.label, "read per token", read, "docs/speed.md: active experts, attention, router and head"
    quality = quality_of(checkpoint, model, candidate.catalogue.qualities)
    level = f"{quality.text}, {quality.figure}" if quality.figure else quality.text
    yield checkpoint.label, "quality", level, quality.source
    for note in checkpoint.notes:
        yield checkpoint.label, "note", note, checkpoint.sources.get("repo", _UNSOURCED)


def _draft_figures(candidate: Candidate) -> Iterator[Figure]:
    """The weights of what drafts tokens, and what its layers keep."""
    draft = draft_of(candidate)
    if draft is None:
        return
    checkpoint = draft.checkpoint or candidate.checkpoint
    size = draft.checkpoint.bytes if draft.checkpoint else built_in_bytes(candidate)
    key = "bytes" if draft.checkpoint else "tensors"
    subject = f"drafts: {draft.title.removeprefix('its ')}"
    yield subject, "weights", bytes_text(size), checkpoint.sources.get(key, _UNSOURCED)
    model = draft.model or candidate.model
    layers = "; ".join(f"{len(entry.layers)} of {entry.shape}" for entry in draft_attention(candidate))
    yield subject, "layers", layers, model.sources.get("attention", model.sources.get("layers", _UNSOURCED))


def _engine_figures(candidate: Candidate) -> Iterator[Figure]:
    per_token = token_bytes(candidate.model, candidate.storage._replace(tensor=1))
    name = f"{candidate.engine.title} {candidate.version}"
    abilities, architecture = candidate.release.abilities, candidate.architecture
    if architecture and abilities.has("architectures", architecture):
        yield name, "architecture", architecture, abilities.source("architectures", architecture)
    for part, names in planned_kernels(candidate).items():
        yield name, f"{part} kernels", ", ".join(names), source_of(candidate)
    kind = f"KV cache {candidate.kv_cache_type}"
    yield kind, "size per token", f"{per_token:,.0f} bytes", "docs/memory.md: what each layer keeps of it"
    # With the margin, as if rigup chose the context; a context that the user chose may leave less.
    largest = f"{reach(candidate):,} tokens"
    yield name, "largest context that fits", largest, "docs/memory.md: the margin stays free, up to the model's context"
    if candidate.usage:
        most = max(mib(use.overhead) for use in candidate.usage)
        measured = [
            found.sources.get("runtime_mib", _UNSOURCED) for found in candidate.measured_overheads.values() if found
        ]
        # Of layers that are cut nobody was asked.
        whole = candidate.parallel.tensor == 1
        reserved = whole and buffers.source_of(candidate.engine.name, candidate.model, candidate.version)
        counted = measured or ["docs/memory.md: overhead"]
        source = "; ".join(dict.fromkeys((*([reserved] if reserved else []), *counted)))
        yield name, "overhead per GPU", f"{most:,} MiB", source
    if candidate.memory_fraction:
        option = "--gpu-memory-utilization" if candidate.engine.name == "vllm" else "--mem-fraction-static"
        yield name, option, f"{candidate.memory_fraction:.2f}", "docs/memory.md: fractions"


def _branch_figures(driver: DriverPlan | None) -> Iterator[Figure]:
    """What is known of the driver's branch: its support, and the CUDA that it runs."""
    known = nvidia_versions().branch(int(driver.branch)) if driver else None
    if known is not None:
        subject = f"driver branch {known.branch}"
        runs = f"came with CUDA {known.cuda}, runs builds of every CUDA {known.cuda.partition('.')[0]}"
        yield subject, "support", known.support, known.source
        yield subject, "CUDA", runs, known.source
