"""What drafts tokens for a candidate: the checkpoint's own draft layers, an EAGLE head or a smaller model."""

from __future__ import annotations

from typing import NamedTuple

from rigup.attention import Attention
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.draft_layers import draft_modules
from rigup.catalogue.model import Model
from rigup.service import DraftKind

# SGLang 0.5.23 arg_groups/speculative_hook.py takes 3 for every model but Llama and Grok, llama-server b11434 too.
USUAL_TOKENS = 3


class Draft(NamedTuple):
    """tokens: drafted at once. model, checkpoint: of a head or a smaller model; None for the target's own layers."""

    kind: DraftKind
    tokens: int
    model: Model | None = None
    checkpoint: CheckpointEntry | None = None

    @property
    def head(self) -> str:
        """Which EAGLE it is, by its class: "eagle3" or "eagle"; "" for anything else."""
        return self.model.head if self.model else ""

    @property
    def title(self) -> str:
        """What messages call it, behind "with"."""
        return "its MTP layers" if self.checkpoint is None else self.checkpoint.label

    def attention(self, target: Model) -> tuple[Attention, ...]:
        """What its layers keep of a sequence."""
        return target.mtp_attention if self.model is None else self.model.attention


def usual_tokens(target: Model | None) -> int:
    """Tokens drafted at once where the service does not say.

    target: whose own layers draft, None for another model's. vLLM takes multiples of its modules alone.
    """
    modules = draft_modules(target) if target else 0
    return USUAL_TOKENS - USUAL_TOKENS % modules if 0 < modules < USUAL_TOKENS else USUAL_TOKENS
