"""What a plan says of speculative decoding: what it counts, or that it could be turned on and what that would cost."""

from __future__ import annotations

from dataclasses import replace

from rigup.planner.attempts import fit_context
from rigup.planner.candidate import Candidate
from rigup.planner.choice import with_largest_context
from rigup.planner.drafting.draft import Draft, usual_tokens
from rigup.planner.memory.loading import built_in_bytes, draft_of
from rigup.planner.memory.weights import weights_of
from rigup.planner.rules import is_refused
from rigup.units import MIB, bytes_text

_SPEED = "how much faster it is depends on the prompts, and is not estimated"


def speculative_text(candidate: Candidate) -> str:
    """One sentence for a candidate that fits; "" where there is nothing to say."""
    draft = draft_of(candidate)
    if draft is None:
        return _offer(candidate) or _heads(candidate)
    taken = bytes_text(built_in_bytes(candidate) if draft.checkpoint is None else draft.checkpoint.bytes)
    by = "the checkpoint's own MTP layers" if draft.checkpoint is None else draft.checkpoint.label
    return f"{draft.tokens} token{'s' * (draft.tokens > 1)} at once by {by} ({taken}); {_SPEED}"


def _offer(candidate: Candidate) -> str:
    """That the checkpoint's MTP layers fit as well, if they do; they are not turned on by themselves.

    With the same context, or, where rigup has chosen that, with the longest one that leaves room for them.
    """
    draft = Draft("mtp", usual_tokens(candidate.model))
    if not candidate.model.mtp_attention or not weights_of(candidate.checkpoint, candidate.model).mtp:
        return ""
    drafting = replace(candidate, draft=draft)
    settled = fit_context(drafting, candidate.context)
    if settled is None and candidate.service.context is None:
        settled = with_largest_context(drafting)
    if settled is None or is_refused(settled):
        return ""
    cost = [f"{bytes_text(_taken(settled) - _taken(candidate))} of memory"]
    if settled.context < candidate.context:
        cost.append(f"a context of {settled.context:,} tokens")
    elif settled.kv_tokens < candidate.kv_tokens:
        cost.append(f"room for {settled.kv_tokens:,} tokens instead of {candidate.kv_tokens:,}")
    return f'"speculative": "mtp" would use the MTP layers: {", ".join(cost)}'


def _heads(candidate: Candidate) -> str:
    """Which EAGLE heads are published for the model. What one takes is known if the catalogue has it, or a lock."""
    heads = candidate.model.eagle_heads
    if not heads or candidate.engine.name == "llama.cpp" or candidate.parallel.pipeline > 1:
        return ""
    more = f", or {' or '.join(heads[1:])}" if heads[1:] else ""
    return f'"speculative": {{"kind": "eagle", "model": "{heads[0]}"}} would use a head that was trained for it{more}'


def _taken(candidate: Candidate) -> float:
    """Bytes on GPUs and host; the caches of vLLM and SGLang take what is left, whatever it is."""
    if candidate.engine.name != "llama.cpp":
        return sum(use.weights for use in candidate.usage) or candidate.host_memory_mib * MIB
    return sum(use.weights + use.overhead + use.kv_cache for use in candidate.usage) or candidate.host_memory_mib * MIB
