"""GGUF: each tensor has a type of its own, which its header names, and the shape that it has in the model."""

from __future__ import annotations

from rigup.quantisation.scheme import Scheme


class Gguf(Scheme):
    """One scheme for all types: only the engine cares about them."""

    engine_name = "gguf"
    catalogue = "gguf"

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """Every element."""
        return elements
