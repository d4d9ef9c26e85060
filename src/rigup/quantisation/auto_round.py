"""AutoRound: "quant_method": "auto-round", packed as GPTQ or AWQ does ("packing_format").

Modules whose bits differ are in extra_config; those with 16 bits or more stay as they are. Source: vLLM 0.33.0
quantization/auto_round.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.grouped_integers import BITS, GROUPS, GroupedIntegers
from rigup.quantisation.scheme import exclusions, number

MOST_MODULES = 500_000


@dataclass(frozen=True)
class AutoRound(GroupedIntegers):
    """Packed by inputs or by outputs."""

    engine_name = "auto-round"


def read(config: Mapping[str, Any]) -> AutoRound | None:
    """The scheme, where the configuration is of it."""
    if config.get("quant_method") not in ("auto-round", "auto_round", "intel/auto-round"):
        return None
    extra = config.get("extra_config") or {}
    if not isinstance(extra, dict) or len(extra) > MOST_MODULES:
        raise ValueError("extra_config: must be a table of modules")
    whole = [name for name, rule in extra.items() if isinstance(rule, dict) and _is_whole(rule.get("bits"))]
    packing = config.get("packing_format")
    return AutoRound(
        exclusions(whole),
        number(config, "bits", BITS),
        number(config, "group_size", GROUPS),
        isinstance(packing, str) and "awq" in packing,
    )


def _is_whole(bits: object) -> bool:
    return type(bits) is int and bits >= 16
