"""Bytes of what drafts tokens on one rank of vLLM and SGLang, which the last stage of a pipeline holds."""

from __future__ import annotations

from rigup.catalogue.draft_layers import draft_modules, loaded_modules
from rigup.planner.candidate import Candidate, expert_ranks
from rigup.planner.memory.loading import draft_of
from rigup.planner.memory.weights import rank_totals, weights_of


def draft_weights(candidate: Candidate) -> float:
    """Built-in layers share their experts as the model does; a head or a smaller model is cut over all ranks.

    Embeddings and head of an EAGLE head that are the model's own, and shared, are counted as if they were not.
    """
    draft, tensor = draft_of(candidate), candidate.parallel.tensor
    if draft is None:
        return 0.0
    if draft.model is None or draft.checkpoint is None:
        return built_in_bytes(candidate) / expert_ranks(candidate.engine.name, tensor, candidate.parallel.data)
    weights = weights_of(draft.checkpoint, draft.model)
    layers = rank_totals(draft.checkpoint, draft.model, tensor, tensor, tensor)[-1]
    return layers + (weights.embedding + weights.head) / tensor


def built_in_bytes(candidate: Candidate) -> float:
    """The checkpoint's own draft layers, as far as the engine loads them; its modules are taken as equal."""
    mtp, modules = weights_of(candidate.checkpoint, candidate.model).mtp, draft_modules(candidate.model)
    return mtp * loaded_modules(candidate.engine.name, candidate.model) / modules if modules else mtp
