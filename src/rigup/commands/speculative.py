"""The options of speculative decoding, as each engine names them."""

from __future__ import annotations

from rigup.commands.options import Options
from rigup.planner.candidate import Candidate


def vllm_drafting(candidate: Candidate) -> Options:
    """One table as JSON, which every version has."""
    draft = candidate.draft
    if draft is None:
        return {}
    return {"--speculative-config": {"method": "mtp", "num_speculative_tokens": draft.tokens}}


def sglang_drafting(candidate: Candidate) -> Options:
    """A chain of drafts: with one candidate a step, the verified tokens are the steps and the one before them."""
    draft = candidate.draft
    if draft is None:
        return {}
    return {
        "--speculative-algorithm": "NEXTN",
        "--speculative-num-steps": draft.tokens,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": draft.tokens + 1,
    }


def llama_cpp_drafting(candidate: Candidate) -> Options:
    """Built-in layers are loaded with the type alone."""
    draft = candidate.draft
    if draft is None:
        return {}
    return {"--spec-type": "draft-mtp", "--spec-draft-n-max": draft.tokens}
