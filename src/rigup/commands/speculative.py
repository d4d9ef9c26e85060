"""The options of speculative decoding, as each engine names them."""

from __future__ import annotations

from rigup.commands.options import Options, model_path
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft


def drafting(candidate: Candidate, files: Checkpoint | None) -> Options:
    """The options of a candidate that drafts tokens. files: of the model that does, if any."""
    draft = candidate.draft
    if draft is None:
        return {}
    path = model_path(draft.checkpoint, files) if draft.checkpoint is not None and files is not None else ""
    if candidate.engine.name == "vllm":
        return _vllm(draft, path)
    return _sglang(draft, path) if candidate.engine.name == "sglang" else _llama_cpp(draft, path, len(candidate.gpus))


def _vllm(draft: Draft, path: str) -> Options:
    """One table as JSON, which every version has."""
    methods = {"mtp": "mtp", "eagle": draft.head, "draft": "draft_model"}
    model = {"model": path} if path else {}
    return {"--speculative-config": {"method": methods[draft.kind], **model, "num_speculative_tokens": draft.tokens}}


def _sglang(draft: Draft, path: str) -> Options:
    """A chain of drafts: with one candidate a step, the verified tokens are the steps and the one before them."""
    algorithms = {"mtp": "NEXTN", "eagle": draft.head.upper(), "draft": "STANDALONE"}
    return {
        "--speculative-algorithm": algorithms[draft.kind],
        **({"--speculative-draft-model-path": path} if path else {}),
        "--speculative-num-steps": draft.tokens,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": draft.tokens + 1,
    }


def _llama_cpp(draft: Draft, path: str, gpus: int) -> Options:
    """Built-in layers are loaded with the type alone. A model of its own goes whole to the last GPU, as is counted."""
    types = {"mtp": "draft-mtp", "eagle": "draft-eagle3", "draft": "draft-simple"}
    chosen: Options = {"--spec-type": types[draft.kind], "--spec-draft-n-max": draft.tokens}
    if path:
        chosen["--spec-draft-model"] = path
    if path and gpus:
        chosen["--spec-draft-ngl"] = "all"
    if path and gpus > 1:
        chosen["--spec-draft-device"] = f"CUDA{gpus - 1}"
    return chosen
