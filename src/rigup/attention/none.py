"""Layers without attention, e.g. the mixture-of-experts layers of Nemotron-H: they keep nothing."""

from typing import Literal

from rigup.attention.attention_class import AttentionClass, LayerCache, Storage


class FeedForward(AttentionClass):
    """A layer that is only a feed-forward part."""

    kind: Literal["none"] = "none"

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """Nothing."""
        return ()

    def parameters(self, hidden: int) -> int:
        """None."""
        return 0

    def activations(self, tensor: int) -> int:
        """None."""
        return 0

    @property
    def cut(self) -> dict[str, int]:
        """Nothing."""
        return {}

    @property
    def shape(self) -> str:
        """No attention."""
        return "no attention"
