"""What GPTQ, AWQ and AutoRound have in common: integers of a few bits, packed into 32, in groups that share a scale."""

from __future__ import annotations

from dataclasses import dataclass, field

from rigup.quantisation.scheme import BESIDE, Exclusions, Scheme, StoredPart, exclusions, groups, plain

BITS = (2, 3, 4, 8)
GROUPS = (-1, 16, 32, 64, 128, 256, 512, 1024)
WORD = 32


@dataclass(frozen=True)
class GroupedIntegers(Scheme):
    """width: bits of a weight. group: weights that share a scale, -1 for a whole row."""

    width: int = 4
    group: int = 128
    excluded: Exclusions = field(default_factory=lambda: exclusions(None))

    @property
    def catalogue(self) -> str:
        """int4_g128."""
        return f"int{self.width}_g{self.group}" if self.group > 0 else f"int{self.width}_channel"

    @property
    def bits(self) -> float:
        """The width."""
        return float(self.width)

    def packed_by_inputs(self, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """GPTQ's way: words run down the inputs, and g_idx says the group of each."""
        count = groups(columns, self.group)
        return (
            StoredPart(".qweight", "I32", (columns * self.width // WORD, rows)),
            StoredPart(".qzeros", "I32", (count, rows * self.width // WORD)),
            StoredPart(".scales", "F16", (count, rows)),
            StoredPart(".g_idx", "I32", (columns,)),
        )

    def packed_by_outputs(self, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """AWQ's way: words run along the outputs."""
        count = groups(columns, self.group)
        return (
            StoredPart(".qweight", "I32", (columns, rows * self.width // WORD)),
            StoredPart(".qzeros", "I32", (count, rows * self.width // WORD)),
            StoredPart(".scales", "F16", (count, rows)),
        )

    def stored(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """As GPTQ stores it; router and output head stay as they are."""
        if unquantised(module) or module in self.excluded:
            return plain(rows, columns)
        return self.packed_by_inputs(rows, columns)

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """As many to a word as fit."""
        if name.endswith(BESIDE):
            return 0
        return elements * WORD // self.width if dtype == "I32" else elements


def unquantised(module: str) -> bool:
    """Whether these schemes leave a module as it is without saying so: the output head."""
    return module.rpartition(".")[2] == "lm_head"
