"""What an engine's flags say of loading: the vision tower, built-in draft layers (MTP), states of cached prefixes."""

from __future__ import annotations

import re

from rigup.attention import Attention
from rigup.attention.attention_class import PrefixStates
from rigup.catalogue.draft_layers import draft_modules, loaded_modules
from rigup.catalogue.engine_facts import CutTowers
from rigup.planner.candidate import Candidate, expert_ranks
from rigup.planner.drafting.draft import Draft
from rigup.planner.memory.vllm_caches import BLOCK_TOKENS
from rigup.planner.memory.weights import Growth, rank_totals, weights_of

# vLLM 0.33.0 and SGLang 0.5.23: options that leave the towers out, and those that ask for speculative decoding.
_TEXT_ONLY = ("--language-model-only",)
_DRAFTING = ("--speculative-config", "--spec-method", "--speculative-algorithm")
# Drafting that takes the layers of the checkpoint itself: vLLM's method, SGLang's algorithms where no model is named.
_BUILT_IN = ("mtp", "nextn", "eagle")
_COUNTING = ("--speculative-config", "--spec-tokens", "--speculative-num-steps")
_TOKENS = r"(?:num_speculative_tokens\W{1,4}|^--spec\S+ )(\d{1,4})"
_MOST_TOKENS = 16
_OTHER_MODEL = ("--speculative-draft-model-path", "--speculative-draft-model", "--spec-model")


def loads_vision(candidate: Candidate) -> bool:
    """llama.cpp has the tower in a file of its own, which rigup does not serve."""
    flags = candidate.service.flags
    return candidate.engine.name != "llama.cpp" and not any(flags.get(name) for name in _TEXT_ONLY)


def growth_of(candidate: Candidate) -> Growth:
    """By how much weights grow as the engine holds them."""
    model, checkpoint, gpus = candidate.model, candidate.checkpoint, candidate.gpus
    capability = min(gpus, key=lambda gpu: gpu.capability).compute_capability if gpus else ""
    architecture, repacks = candidate.architecture, candidate.release.repacks
    scheme, method = checkpoint.scheme, checkpoint.method
    experts = repacks(checkpoint.expert_scheme or scheme, method, capability, architecture)
    others = repacks(scheme, method, capability, architecture)
    part = (model.expert_intermediate or 0) / candidate.expert_shards
    return Growth(
        (1 + experts.expert_scales) * (experts.of_experts(model.hidden, part) if part else 1.0),
        1.0 if checkpoint.scope == "experts" else 1 + others.scales,
    )


def tower_bytes(candidate: Candidate, stage: int = 0) -> float:
    """Bytes of the vision tower on a rank of a pipeline's stage."""
    cut = _cut_of(candidate)
    if not loads_vision(candidate) or (stage and not (cut and cut.every_stage)):
        return 0.0
    return weights_of(candidate.checkpoint, candidate.model).vision / (candidate.parallel.tensor if cut else 1)


def encoder_bytes(candidate: Candidate) -> float:
    """What an engine takes on a rank of the first stage to encode pictures, beside the step of the language model."""
    cut = _cut_of(candidate)
    if cut is None or not loads_vision(candidate):
        return 0.0
    return cut.encoder * (weights_of(candidate.checkpoint, candidate.model).vision - tower_bytes(candidate))


def _cut_of(candidate: Candidate) -> CutTowers | None:
    return candidate.release.cut_tower(candidate.architecture, candidate.service.flags)


# The first release after one that a row shows with one block of states; 0.33.0 takes two (see vllm_caches).
_TWO_STATES_SINCE = "0.28.0"
_IN_FLIGHT_SINCE = "0.26.0"
_NO_PREFIXES = "--no-enable-prefix-caching"


def state_blocks(candidate: Candidate) -> int:
    """Blocks of states that vLLM gives a request of a hybrid model, and one for each draft.

    Two where it caches prefixes, and a third where layers write the state of a prefix in the middle of a step.
    Source: vLLM 0.33.0 v1/kv_cache_interface.py: max_memory_usage_bytes of states.
    """
    release, draft = candidate.release, draft_of(candidate)
    drafted = draft.tokens if draft else 0
    if candidate.service.flags.get(_NO_PREFIXES) or not release.at_least(_TWO_STATES_SINCE):
        return drafted + 1
    return drafted + (3 if prefix_states(candidate) else 2)


def prefix_states(candidate: Candidate) -> tuple[PrefixStates, ...]:
    """Those of the model's layers whose kernels write states of prefixes on these GPUs."""
    if candidate.service.flags.get(_NO_PREFIXES):
        return ()
    least = min((gpu.capability for gpu in candidate.gpus), default=(0, 0))
    found = (entry.writes_prefixes for entry in candidate.model.attention)
    return tuple(one for one in found if one and candidate.release.at_least(one.since) and least >= one.capability)


def block_tokens(candidate: Candidate) -> int:
    """Of the smallest block of vLLM's cache on GPUs."""
    return max((one.block_tokens for one in prefix_states(candidate)), default=BLOCK_TOKENS)


def in_flight_tokens(candidate: Candidate) -> int:
    """Tokens that may be in vLLM's steps which are not yet done: a sliding window keeps them all.

    Source: vLLM's config/vllm.py, max_in_flight_tokens, since 0.26.0: a step for each stage, and one more that is
    scheduled meanwhile.
    """
    batches = 1
    if candidate.release.at_least(_IN_FLIGHT_SINCE):
        flags = candidate.service.flags
        waits = bool(flags.get("--no-async-scheduling")) or flags.get("--async-scheduling") is False
        batches = candidate.parallel.pipeline + (0 if waits else 1)
    return batches * candidate.batched_tokens


def draft_of(candidate: Candidate) -> Draft | None:
    """What drafts tokens: as the service says, or the model's own draft layers where its flags ask for them."""
    if candidate.draft is not None:
        return candidate.draft
    flags = candidate.service.flags
    if not candidate.model.mtp_attention or any(name in flags for name in _OTHER_MODEL):
        return None
    asked = " ".join(str(flags[name]).lower() for name in _DRAFTING if name in flags)
    built_in = any(name in asked for name in _BUILT_IN) and '"model"' not in asked
    count = re.search(_TOKENS, " ".join(f"{name} {flags[name]}" for name in _COUNTING if name in flags))
    return Draft("mtp", min(_MOST_TOKENS, int(count[1])) if count else 1) if built_in else None


def draft_attention(candidate: Candidate) -> tuple[Attention, ...]:
    """What the layers keep that draft, as far as the engine loads them; () for nothing that drafts."""
    draft, model = draft_of(candidate), candidate.model
    if draft is None:
        return ()
    layers, built_in = draft.attention(model), draft.model is None
    if not built_in or (loaded := loaded_modules(candidate.engine.name, model)) == draft_modules(model):
        return layers
    kept = ((entry, tuple(number for number in entry.layers if number < loaded)) for entry in layers)
    return tuple(entry.model_copy(update={"layers": numbers}) for entry, numbers in kept if numbers)


def draft_weights(candidate: Candidate) -> float:
    """Bytes of what drafts tokens on one rank of vLLM and SGLang, which the last stage of a pipeline holds.

    Built-in layers share their experts as the model does; a head or a smaller model is cut over all ranks, but for the
    `fc` of an EAGLE head, among its norms: ReplicatedLinear in vLLM 0.33.0, nn.Linear in SGLang 0.5.23, whose Kimi head
    alone cuts it. Embeddings and head that are the model's own, and shared, are counted as if they were not.
    """
    draft, tensor = draft_of(candidate), candidate.parallel.tensor
    if draft is None:
        return 0.0
    if draft.model is None or draft.checkpoint is None:
        return built_in_bytes(candidate) / expert_ranks(candidate.engine.name, tensor, candidate.parallel.data)
    weights = weights_of(draft.checkpoint, draft.model)
    layers = rank_totals(draft.checkpoint, draft.model, tensor, tensor)[-1]
    whole = draft.checkpoint.tensors.norms if draft.checkpoint.tensors else 0
    return layers + whole + (weights.embedding - whole + weights.head) / tensor


def built_in_bytes(candidate: Candidate) -> float:
    """The checkpoint's own draft layers, as far as the engine loads them; its modules are taken as equal."""
    mtp, modules = weights_of(candidate.checkpoint, candidate.model).mtp, draft_modules(candidate.model)
    return mtp * loaded_modules(candidate.engine.name, candidate.model) / modules if modules else mtp
