"""GPTQ, AWQ and AutoRound: integers of a few bits, packed into 32, in groups that share a scale.

GPTQ packs them along the inputs, AWQ along the outputs, AutoRound as its packing_format says. AutoRound lists modules
with other bits in extra_config; those with 16 bits or more stay as they are. Sources: vLLM 0.33.0 quantization/gptq.py,
gptq_marlin.py, awq.py, awq_marlin.py and auto_round.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.scheme import Scheme, StoredPart, exclusions, groups, number

BITS = (2, 3, 4, 8)
GROUPS = (-1, 16, 32, 64, 128, 256, 512, 1024)
WORD = 32
MOST_MODULES = 500_000


@dataclass(frozen=True)
class GroupedIntegers(Scheme):
    """width: bits of a weight. group: weights that share a scale, -1 for a whole row.

    by_outputs: packed as AWQ does, else as GPTQ does.
    """

    engine_name: str = "gptq"
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


def read(config: Mapping[str, Any]) -> GroupedIntegers | None:
    """The scheme, where the configuration is of one of these."""
    method = config.get("quant_method")
    if method == "gptq":
        rules = config.get("dynamic")
        skipped = [f"re:{key[2:]}" for key in rules if str(key).startswith("-:")] if isinstance(rules, dict) else None
        excluded = exclusions(config.get("modules_to_not_convert", skipped), anywhere=True)
        by_outputs = False
    elif method == "awq":
        # older ones write w_bit and q_group_size
        config = {"bits": config.get("w_bit"), "group_size": config.get("q_group_size"), **config}
        excluded = exclusions(config.get("modules_to_not_convert"), anywhere=True)
        by_outputs = True
    elif method in ("auto-round", "auto_round", "intel/auto-round"):
        method = "auto-round"
        excluded = exclusions(_whole_modules(config.get("extra_config") or {}))
        packing = config.get("packing_format")
        by_outputs = isinstance(packing, str) and "awq" in packing
    else:
        return None
    width, group = number(config, "bits", BITS), number(config, "group_size", GROUPS)
    return GroupedIntegers(excluded, method, width, group, by_outputs)


def _whole_modules(extra: Any) -> list[str]:
    """The modules of an extra_config that stay as they are."""
    if not isinstance(extra, dict) or len(extra) > MOST_MODULES:
        raise ValueError("extra_config: must be a table of modules")
    bits = {name: rule.get("bits") for name, rule in extra.items() if isinstance(rule, dict)}
    return [name for name, width in bits.items() if type(width) is int and width >= 16]
