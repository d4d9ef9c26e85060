"""Speculative decoding: what the checkpoint, the engine version and the layout must have for it."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.draft_layers import loaded_modules, runs_draft_layers
from rigup.planner.abilities import instead_of, loads, others_that, titles, unsupported
from rigup.planner.candidate import Candidate
from rigup.planner.memory.weights import weights_of
from rigup.planner.rules.rule import Complaint, engine_name, refuses

_WITHOUT = "leave speculative out"
# Its check_pipeline_parallel_compat lets EAGLE pass; 0.5.9 refused everything, and those between were not read.
_SGLANG_PIPELINES = "0.5.23"
_VLLM_DRAFT_MODELS, _VLLM_DRAFT_SOURCE = "0.15.0", "vLLM 0.14.0 config/speculative.py raises NotImplementedError"
_TOLERATED_TOKENS = 128
# What the engine drafts with, in every spelling; the plan decides these where the service says `speculative`.
_OPTIONS = {
    "vllm": "--speculative-config -sc --spec-method --spec-model --spec-tokens",
    "sglang": "--speculative-algorithm --speculative-num-steps --speculative-num-draft-tokens --speculative-eagle-topk "
    "--speculative-draft-model-path --speculative-draft-model --speculative-adaptive --enable-multi-layer-eagle",
    "llama.cpp": "--spec-type --spec-draft-n-max --spec-draft-n-min --spec-draft-model --model-draft -md "
    "--spec-draft-hf -hfd -hfrd --hf-repo-draft --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft "
    "--spec-draft-device -devd --device-draft --spec-default --spec-draft-type-k -ctkd --cache-type-k-draft "
    "--spec-draft-type-v -ctvd --cache-type-v-draft",
}


@refuses("speculative-layers", "the model's config.json and the tensors of the checkpoint")
def speculative_layers(candidate: Candidate) -> Iterator[Complaint]:
    """Built-in drafting needs a checkpoint with MTP layers."""
    draft, model = candidate.draft, candidate.model
    if draft is None or draft.kind != "mtp":
        return
    if not model.mtp_attention:
        yield f"{model.name} has no MTP layers that the catalogue knows of", _WITHOUT
    elif not weights_of(candidate.checkpoint, model).mtp:
        yield (
            f"{candidate.checkpoint.label} has no MTP layers that the catalogue knows of",
            f"{_WITHOUT}; or, if the repository has them, read it: rigup model add {candidate.checkpoint.repo}",
        )


@refuses("speculative-model", "the registry of models in the engine's own package, and its loaders, per version")
def speculative_model(candidate: Candidate) -> Iterator[Complaint]:
    """A model that drafts must be of its kind, and one that the engine version loads."""
    draft = candidate.draft
    if draft is None or draft.model is None or draft.checkpoint is None:
        return
    label = draft.checkpoint.label
    if draft.kind == "eagle" and not draft.head:
        yield f"{label} is not an EAGLE head", f'write "kind": "draft", or {_WITHOUT}'
    elif draft.kind == "draft" and draft.head:
        yield f"{label} is an EAGLE head", 'write "kind": "eagle"'
    elif draft.head == "eagle" and candidate.engine.name == "llama.cpp":
        yield f"{engine_name(candidate)} runs heads of EAGLE-3 only, and {label} is an older one", _WITHOUT
    elif not loads(draft.checkpoint, candidate.release) or _is_gguf(draft.checkpoint) != _is_gguf(candidate.checkpoint):
        kind = "GGUF" if _is_gguf(candidate.checkpoint) else "safetensors"
        yield (
            f"the catalogue has no checkpoint of {draft.model.name} in {kind} that {engine_name(candidate)} loads",
            f"name a repository that has it in {kind}, or {_WITHOUT}",
        )
    elif bool(draft.checkpoint.mistral_class) != bool(candidate.checkpoint.mistral_class):
        stored = "Mistral's own format" if candidate.checkpoint.mistral_class else "transformers' format"
        yield (
            f"{candidate.checkpoint.label} is in {stored}, and {label} is not: one reader loads both",
            f"name a repository that has it in {stored}, or {_WITHOUT}",
        )
    elif reason := unsupported(draft.model, draft.checkpoint, candidate.release, candidate.catalogue.engines):
        yield reason


def _is_gguf(checkpoint: CheckpointEntry) -> bool:
    return checkpoint.scheme == "gguf"


@refuses(
    "speculative-vocabulary",
    "vLLM 0.33.0 verify_equal_vocab_size_if_draft_model; llama.cpp b11434 common/speculative.cpp: 128 tokens apart",
)
def speculative_vocabulary(candidate: Candidate) -> Iterator[Complaint]:
    """What drafts must have the vocabulary of the model that verifies."""
    draft = candidate.draft
    if draft is None or draft.model is None:
        return
    tolerated = _TOLERATED_TOKENS if candidate.engine.name == "llama.cpp" else 0
    if differs := candidate.model.other_vocabulary(draft.model, tolerated):
        yield f"the vocabularies differ: {differs}", "name a model with the same tokenizer, or " + _WITHOUT


@refuses("speculative-context", "vLLM 0.33.0 config/vllm.py: max_model_len comes down to that of the draft model")
def speculative_context(candidate: Candidate) -> Iterator[Complaint]:
    """A smaller model must support the whole context to draft for it."""
    draft = candidate.draft
    if draft is None or draft.kind != "draft" or draft.model is None or draft.model.context >= candidate.context:
        return
    yield (
        f"{draft.model.name} drafts in a context of {draft.model.context:,} tokens at most, not {candidate.context:,}",
        f"set context to {draft.model.context}, or {_WITHOUT}",
    )


@refuses("speculative-engine", "the registry of models in the engine's own package, per version")
def speculative_engine(candidate: Candidate) -> Iterator[Complaint]:
    """The engine version must run the MTP layers of the model, or draft with another one."""
    draft, model = candidate.draft, candidate.model
    if draft is not None and draft.kind == "draft" and candidate.engine.name == "vllm":
        if not candidate.release.at_least(_VLLM_DRAFT_MODELS):
            hint = f"set version to {_VLLM_DRAFT_MODELS} or later, or {_WITHOUT}"
            yield f"{engine_name(candidate)} does not draft with a model", hint, _VLLM_DRAFT_SOURCE
        return
    if draft is None or draft.kind != "mtp" or not model.mtp_attention or runs_draft_layers(candidate.release, model):
        return
    having = others_that(candidate.release, candidate.catalogue.engines, lambda other: runs_draft_layers(other, model))
    hint = f"{instead_of(candidate.release, having)}, or {_WITHOUT}" if having else _WITHOUT
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
        if draft.kind != "mtp" or not candidate.release.at_least(_SGLANG_PIPELINES):
            yield f"{engine_name(candidate)} does not draft tokens in a pipeline", f"use tensor_parallel, or {_WITHOUT}"
    elif candidate.parallel.pipeline > 1 and draft.kind != "mtp":
        yield (
            "the plan does not count a model that drafts tokens in a pipeline",
            f"use tensor_parallel, or {_WITHOUT}",
            "vLLM 0.33.0 eagle3_utils.py: most models do not support it with pipeline parallelism",
        )


@refuses(
    "speculative-tokens", "vLLM 0.33.0 config/speculative.py: num_speculative_tokens must be divisible by n_predict"
)
def speculative_tokens(candidate: Candidate) -> Iterator[Complaint]:
    """vLLM drafts at most one token with each MTP module, or a multiple of their number."""
    draft = candidate.draft
    if draft is None or draft.kind != "mtp" or candidate.engine.name != "vllm":
        return
    modules = loaded_modules("vllm", candidate.model)
    if not modules:
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
        if option.partition(".")[0] in _OPTIONS[candidate.engine.name].split():
            yield f"{option} repeats a setting of speculative", "leave one of them out"
