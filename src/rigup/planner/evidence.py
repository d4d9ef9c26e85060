"""The figures that a decision rests on, each with its source, for `--explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rigup.catalogue.quality import quality_of
from rigup.plan import Evidence
from rigup.planner.candidate import Candidate, mib
from rigup.planner.choice import with_largest_context
from rigup.planner.memory.draft_weights import built_in_bytes
from rigup.planner.memory.kv_cache import token_bytes
from rigup.planner.memory.loading import draft_attention, draft_of
from rigup.planner.memory.weights import active_bytes
from rigup.units import bytes_text

_UNSOURCED = "catalogue"


def evidence_of(candidate: Candidate) -> tuple[Evidence, ...]:
    """Figures about the GPUs, their driver, the model, the checkpoint, the KV cache and the engine, in that order."""
    return (
        *_gpu_figures(candidate),
        *_driver_figures(candidate),
        *_model_figures(candidate),
        *_checkpoint_figures(candidate),
        *_draft_figures(candidate),
        *_engine_figures(candidate),
    )


def _gpu_figures(candidate: Candidate) -> Iterator[Evidence]:
    for gpu in {gpu.key: gpu for gpu in candidate.gpus}.values():
        memory = f"{gpu.memory_mib:,} MiB" if gpu.memory_mib else "the host's"
        memory_source = gpu.sources.get("memory_mib") or gpu.sources.get("unified_memory", _UNSOURCED)
        yield Evidence(subject=gpu.name, figure="memory", value=memory, source=memory_source)
        yield Evidence(
            subject=gpu.name,
            figure="memory bandwidth",
            value=f"{gpu.memory_bandwidth_gbs:,.0f} GB/s",
            source=gpu.sources.get("memory_bandwidth_gbs", _UNSOURCED),
        )


def _driver_figures(candidate: Candidate) -> Iterator[Evidence]:
    """Only if the driver reserves more than the calibrated overhead includes."""
    reserve = candidate.driver_reserve
    if candidate.gpu_indices and reserve is not None and reserve.additional_mib:
        yield Evidence(
            subject=f"driver since branch {reserve.branch}",
            figure="additional reserve of each GPU",
            value=f"{reserve.additional_mib:,} MiB",
            source=f"{reserve.source}; confidence {reserve.confidence}",
        )


def _model_figures(candidate: Candidate) -> Iterator[Evidence]:
    model = candidate.model
    for figure, value, field in (
        ("shape", model.attention_shape, "layers"),
        ("parameters", f"{candidate.checkpoint.parameters or model.parameters:,}", "parameters"),
        ("context", f"{model.context:,} tokens", "context"),
        ("licence", model.license, "license"),
        *(
            (f"template flag {name}", ", ".join(values), "template_flags")
            for name, values in model.template_flags.items()
        ),
        *(("note", note, "notes") for note in model.notes),
    ):
        source = model.sources.get(field) or model.sources.get("layers", _UNSOURCED)
        if value:
            yield Evidence(subject=model.name, figure=figure, value=value, source=source)


def _checkpoint_figures(candidate: Candidate) -> Iterator[Evidence]:
    checkpoint, model = candidate.checkpoint, candidate.model
    exact = "" if checkpoint.bytes_exact else " (not exact)"
    yield Evidence(
        subject=checkpoint.label,
        figure="size",
        value=bytes_text(checkpoint.bytes) + exact,
        source=checkpoint.sources.get("bytes", _UNSOURCED),
    )
    yield Evidence(
        subject=checkpoint.label,
        figure="read per token",
        value=bytes_text(active_bytes(checkpoint, model)),
        source="docs/memory.md: active experts, attention, router and head",
    )
    quality = quality_of(checkpoint, model, candidate.catalogue.qualities)
    yield Evidence(
        subject=checkpoint.label,
        figure="quality",
        value=f"{quality.text}, {quality.figure}" if quality.figure else quality.text,
        source=quality.source,
    )
    for note in checkpoint.notes:
        yield Evidence(
            subject=checkpoint.label, figure="note", value=note, source=checkpoint.sources.get("repo", _UNSOURCED)
        )


def _draft_figures(candidate: Candidate) -> Iterator[Evidence]:
    """The weights of what drafts tokens, and what its layers keep."""
    draft = draft_of(candidate)
    if draft is None:
        return
    checkpoint = draft.checkpoint or candidate.checkpoint
    size = draft.checkpoint.bytes if draft.checkpoint else built_in_bytes(candidate)
    key = "bytes" if draft.checkpoint else "tensors"
    subject, source = f"drafts: {draft.title.removeprefix('its ')}", checkpoint.sources.get(key, _UNSOURCED)
    yield Evidence(subject=subject, figure="weights", value=bytes_text(size), source=source)
    model = draft.model or candidate.model
    source = model.sources.get("attention", model.sources.get("layers", _UNSOURCED))
    layers = "; ".join(f"{len(entry.layers)} of {entry.shape}" for entry in draft_attention(candidate))
    yield Evidence(subject=subject, figure="layers", value=layers, source=source)


def _engine_figures(candidate: Candidate) -> Iterator[Evidence]:
    per_token = token_bytes(candidate.model, replace(candidate.storage, tensor=1))
    name = f"{candidate.engine.title} {candidate.version}"
    abilities, architecture = candidate.release.abilities, candidate.release.architecture_of(candidate.model)
    if architecture and abilities.has("architectures", architecture):
        source = abilities.source("architectures", architecture)
        yield Evidence(subject=name, figure="architecture", value=architecture, source=source)
    yield Evidence(
        subject=f"KV cache {candidate.kv_cache_type}",
        figure="size per token",
        value=f"{per_token:,.0f} bytes",
        source="docs/memory.md: what each layer keeps of it",
    )
    yield Evidence(
        subject=name,
        figure="largest context that fits",
        value=f"{_largest_context(candidate):,} tokens",
        source="docs/memory.md: the margin stays free, up to the model's context",
    )
    if candidate.usage:
        most = max(mib(use.overhead) for use in candidate.usage)
        measured = [
            found.sources.get("runtime_mib", _UNSOURCED) for found in candidate.measured_overheads.values() if found
        ]
        source = "; ".join(dict.fromkeys(measured)) or "docs/memory.md: calibration"
        yield Evidence(subject=name, figure="overhead per GPU", value=f"{most:,} MiB", source=source)
    if candidate.memory_fraction:
        option = "--gpu-memory-utilization" if candidate.engine.name == "vllm" else "--mem-fraction-static"
        yield Evidence(
            subject=name, figure=option, value=f"{candidate.memory_fraction:.2f}", source="docs/memory.md: fractions"
        )


def _largest_context(candidate: Candidate) -> int:
    """With the margin, as if rigup chose the context; a context that the user chose may leave less."""
    larger = with_largest_context(candidate)
    return max(candidate.context, larger.context if larger else 0)
