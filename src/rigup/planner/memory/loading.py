"""What of a checkpoint an engine loads beside the layers: the vision tower, and built-in draft layers (MTP)."""

from __future__ import annotations

from rigup.planner.candidate import Candidate

# vLLM 0.33.0 and SGLang 0.5.23: options that leave the towers out, and those that ask for speculative decoding.
_TEXT_ONLY = ("--language-model-only",)
_DRAFTING = ("--speculative-config", "--spec-method", "--speculative-algorithm")
# Drafting that takes the layers of the checkpoint itself: vLLM's method, SGLang's algorithms where no model is named.
_BUILT_IN = ("mtp", "nextn", "eagle")
_OTHER_MODEL = ("--speculative-draft-model-path", "--speculative-draft-model", "--spec-model")


def loads_vision(candidate: Candidate) -> bool:
    """llama.cpp has the tower in a file of its own, which rigup does not serve."""
    flags = candidate.service.flags
    return candidate.engine.name != "llama.cpp" and not any(flags.get(name) for name in _TEXT_ONLY)


def drafts(candidate: Candidate) -> bool:
    """Whether built-in draft layers are loaded: the model has some, and the service's flags ask for them."""
    flags = candidate.service.flags
    if not candidate.model.mtp_attention or any(name in flags for name in _OTHER_MODEL):
        return False
    asked = " ".join(str(flags[name]).lower() for name in _DRAFTING if name in flags)
    return any(name in asked for name in _BUILT_IN) and '"model"' not in asked
