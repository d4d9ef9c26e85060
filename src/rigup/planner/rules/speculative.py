"""Speculative decoding: what the checkpoint, the engine version and the layout must have for it."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.catalogue.draft_layers import runs_draft_layers
from rigup.planner.abilities import others_that, titles
from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import draft_modules
from rigup.planner.memory.weights import weights_of
from rigup.planner.rules.rule import Complaint, engine_name, refuses

_WITHOUT = "leave speculative out"
# Its check_pipeline_parallel_compat lets EAGLE pass; 0.5.9 refused everything, and those between were not read.
_SGLANG_PIPELINES = "0.5.23"
# What the engine drafts with, in every spelling; the plan decides these where the service says `speculative`.
_OPTIONS = {
    "vllm": ("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"),
    "sglang": (
        *("--speculative-algorithm", "--speculative-num-steps", "--speculative-num-draft-tokens"),
        *("--speculative-eagle-topk", "--speculative-draft-model-path", "--speculative-draft-model"),
        *("--speculative-adaptive", "--enable-multi-layer-eagle"),
    ),
    "llama.cpp": (
        *("--spec-type", "--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-model", "--model-draft", "-md"),
        *("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-ngl", "-ngld", "--gpu-layers-draft"),
        *("--n-gpu-layers-draft", "--spec-draft-device", "-devd", "--device-draft", "--spec-default"),
        *("--spec-draft-type-k", "-ctkd", "--cache-type-k-draft", "--spec-draft-type-v", "-ctvd"),
        *("--cache-type-v-draft",),
    ),
}


@refuses("speculative-layers", "the model's config.json and the tensors of the checkpoint")
def speculative_layers(candidate: Candidate) -> Iterator[Complaint]:
    """Built-in drafting needs a checkpoint with MTP layers."""
    draft, model = candidate.draft, candidate.model
    if draft is None or draft.kind != "mtp":
        return
    if not model.mtp_attention:
        yield f"{model.name} has no MTP layers", _WITHOUT
    elif not weights_of(candidate.checkpoint, model).mtp:
        yield (
            f"{candidate.checkpoint.label} has no MTP layers that the catalogue knows of",
            f"{_WITHOUT}; or, if the repository has them, read it: rigup model add {candidate.checkpoint.repo}",
        )


@refuses("speculative-engine", "the registry of models in the engine's own package, per version")
def speculative_engine(candidate: Candidate) -> Iterator[Complaint]:
    """The engine version must run the MTP layers of the model."""
    draft, model = candidate.draft, candidate.model
    if draft is None or draft.kind != "mtp" or not model.mtp_attention or runs_draft_layers(candidate.release, model):
        return
    having = others_that(candidate.release, candidate.catalogued, lambda other: runs_draft_layers(other, model))
    if not having:
        hint = _WITHOUT
    elif having[0].engine == candidate.engine.name:
        hint = f"set version to {having[0].version}, or {_WITHOUT}"
    else:
        hint = f"use {' or '.join(other.title for other in having)}, or {_WITHOUT}"
    yield f"{engine_name(candidate)} cannot run the MTP layers of {model.name}{titles(having)}", hint


@refuses(
    "speculative-layout",
    "SGLang 0.5.9 check_server_args, 0.5.23 check_pipeline_parallel_compat; the plan's llama.cpp over RPC",
)
def speculative_layout(candidate: Candidate) -> Iterator[Complaint]:
    """Speculative decoding does not work with every way of spreading a model over GPUs and hosts."""
    draft = candidate.draft
    if draft is None:
        return
    if candidate.engine.name == "llama.cpp" and candidate.hosts > 1:
        yield "the plan does not count speculative decoding with llama.cpp over several hosts", _WITHOUT
    elif candidate.parallel.pipeline > 1 and candidate.engine.name == "sglang":
        built_in = draft.kind == "mtp" and candidate.release.at_least(_SGLANG_PIPELINES)
        if not built_in:
            yield f"{engine_name(candidate)} does not draft tokens in a pipeline", f"use tensor_parallel, or {_WITHOUT}"


@refuses(
    "speculative-tokens", "vLLM 0.33.0 config/speculative.py: num_speculative_tokens must be divisible by n_predict"
)
def speculative_tokens(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM drafts at most one token with each MTP module, or a multiple of their number."""
    draft, modules = candidate.draft, draft_modules(candidate.model)
    if draft is None or draft.kind != "mtp" or candidate.engine.name != "vllm" or not modules:
        return
    if draft.tokens > modules and draft.tokens % modules:
        yield (
            f"speculative.tokens is {draft.tokens}, which is not a multiple of the {modules} MTP modules of "
            f"{candidate.model.name}",
            f"write {draft.tokens - draft.tokens % modules}, or leave tokens out",
        )


@refuses("speculative-flags", "the plan: it counts what drafts tokens from the service's speculative")
def speculative_flags(candidate: Candidate) -> Iterator[Complaint]:
    """Flags must not say again what drafts tokens."""
    if candidate.draft is None:
        return
    for option in candidate.service.flags:
        if option.partition(".")[0] in _OPTIONS[candidate.engine.name]:
            yield f"{option} says again what speculative says", "leave one of them out"
