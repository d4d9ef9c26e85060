"""The options of speculative decoding, as each engine names them."""

from __future__ import annotations

from collections.abc import Callable

from rigup.commands.names import model_path
from rigup.commands.options import Options
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft
from rigup.service import EngineName


def drafting(candidate: Candidate, files: Checkpoint | None) -> Options:
    """The options of a candidate that drafts tokens. files: of the model that does, if any."""
    draft = candidate.draft
    if draft is None:
        return {}
    path = model_path(draft.checkpoint, files) if draft.checkpoint is not None and files is not None else ""
    return _ENGINES[candidate.engine.name](candidate, draft, path)


def _vllm(candidate: Candidate, draft: Draft, path: str) -> Options:
    """One table as JSON, which every version has."""
    del candidate
    methods = {"mtp": "mtp", "eagle": draft.head, "draft": "draft_model"}
    model = {"model": path} if path else {}
    return {"--speculative-config": {"method": methods[draft.kind], **model, "num_speculative_tokens": draft.tokens}}


def _sglang(candidate: Candidate, draft: Draft, path: str) -> Options:
    """A chain of drafts: with one candidate a step, the verified tokens are the steps and the one before them."""
    del candidate
    algorithms = {"mtp": "NEXTN", "eagle": draft.head.upper(), "draft": "STANDALONE"}
    return {
        "--speculative-algorithm": algorithms[draft.kind],
        **({"--speculative-draft-model-path": path} if path else {}),
        "--speculative-num-steps": draft.tokens,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": draft.tokens + 1,
    }


def _llama_cpp(candidate: Candidate, draft: Draft, path: str) -> Options:
    """Built-in layers are loaded with the type alone. A model of its own goes whole to the last GPU, as is counted."""
    types = {"mtp": "draft-mtp", "eagle": "draft-eagle3", "draft": "draft-simple"}
    chosen: Options = {"--spec-type": types[draft.kind], "--spec-draft-n-max": draft.tokens}
    if path:
        chosen["--spec-draft-model"] = path
    if path and candidate.gpus:
        chosen["--spec-draft-ngl"] = "all"
    if path and len(candidate.gpus) > 1:
        chosen["--spec-draft-device"] = f"CUDA{len(candidate.gpus) - 1}"
    return chosen


_ENGINES: dict[EngineName, Callable[[Candidate, Draft, str], Options]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
}
