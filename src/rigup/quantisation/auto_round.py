"""AutoRound: "quant_method": "auto-round", packed as GPTQ or AWQ does ("packing_format").

Modules whose bits differ are in extra_config; those with 16 bits or more stay as they are. Source: vLLM 0.33.0
quantization/auto_round.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.grouped_integers import BITS, GROUPS, GroupedIntegers
from rigup.quantisation.scheme import StoredPart, exclusions, number

MOST_MODULES = 500_000


@dataclass(frozen=True)
class AutoRound(GroupedIntegers):
    """like_awq: packed by outputs, else by inputs."""

    engine_name = "auto-round"
    like_awq: bool = False

    def quantised(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """As the packing says."""
        return self.packed_by_outputs(rows, columns) if self.like_awq else self.packed_by_inputs(rows, columns)


def read(config: Mapping[str, Any]) -> AutoRound | None:
    """The scheme, where the configuration is of it."""
    if config.get("quant_method") not in ("auto-round", "auto_round", "intel/auto-round"):
        return None
    extra = config.get("extra_config") or {}
    if not isinstance(extra, dict) or len(extra) > MOST_MODULES:
        raise ValueError("extra_config: must be a table of modules")
    whole = [name for name, rule in extra.items() if isinstance(rule, dict) and _bits(rule) >= 16]
    packing = config.get("packing_format")
    return AutoRound(
        exclusions(whole),
        number(config, "bits", BITS),
        number(config, "group_size", GROUPS),
        isinstance(packing, str) and "awq" in packing,
    )


def _bits(rule: Mapping[str, Any]) -> int:
    found = rule.get("bits")
    return found if type(found) is int else 0
