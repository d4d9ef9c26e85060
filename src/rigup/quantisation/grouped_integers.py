"""What GPTQ, AWQ and AutoRound have in common: integers of a few bits, packed into 32, in groups that share a scale."""

from __future__ import annotations

from dataclasses import dataclass

from rigup.quantisation.scheme import Scheme, StoredPart, groups

BITS = (2, 3, 4, 8)
GROUPS = (-1, 16, 32, 64, 128, 256, 512, 1024)
WORD = 32


@dataclass(frozen=True)
class GroupedIntegers(Scheme):
    """width: bits of a weight. group: weights that share a scale, -1 for a whole row.

    by_outputs: packed as AWQ does, else as GPTQ does.
    """

    width: int = 4
    group: int = 128
    by_outputs: bool = False

    @property
    def catalogue(self) -> str:
        """int4_g128."""
        return f"int{self.width}_g{self.group}" if self.group > 0 else f"int{self.width}_channel"

    def leaves(self, module: str) -> bool:
        """Also the output head, which no list of these schemes names."""
        return super().leaves(module) or module.rpartition(".")[2] == "lm_head"

    def quantised(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """Words run down the inputs, and g_idx says the group of each; or they run along the outputs."""
        count = groups(columns, self.group)
        zeros = StoredPart(".qzeros", "I32", (count, rows * self.width // WORD))
        scales = StoredPart(".scales", "F16", (count, rows))
        if self.by_outputs:
            return (StoredPart(".qweight", "I32", (columns, rows * self.width // WORD)), zeros, scales)
        weights = StoredPart(".qweight", "I32", (columns * self.width // WORD, rows))
        return (weights, zeros, scales, StoredPart(".g_idx", "I32", (columns,)))

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """As many to a word as fit."""
        found = super().weights(name, dtype, elements)
        return found * WORD // self.width if dtype == "I32" else found
