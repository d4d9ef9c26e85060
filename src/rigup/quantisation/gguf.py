"""GGUF: each tensor has a type of its own, which its header names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rigup.quantisation.ggml_types import GGML_TYPES
from rigup.quantisation.scheme import Scheme, StoredPart


@dataclass(frozen=True)
class Gguf(Scheme):
    """main: the type of most tensors."""

    engine_name: ClassVar[str] = "gguf"
    main: str = "Q4_K"

    @property
    def catalogue(self) -> str:
        """gguf."""
        return "gguf"

    @property
    def bits(self) -> float:
        """Those of the main type."""
        return next(kind.bits for kind in GGML_TYPES.values() if kind.name == self.main)

    def stored(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """One tensor; vectors and routers stay in float32."""
        kind = "F32" if module.endswith("ffn_gate_inp") else self.main
        return (StoredPart(".weight", kind, (rows, columns)),)

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """Every element: shapes are those of the model."""
        del name, dtype
        return elements
