"""AWQ: "quant_method": "awq" with bits and group_size. Source: vLLM 0.33.0 quantization/awq.py, awq_marlin.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.grouped_integers import BITS, GROUPS, GroupedIntegers
from rigup.quantisation.scheme import exclusions, number


@dataclass(frozen=True)
class Awq(GroupedIntegers):
    """Packed by outputs, without an index of groups."""

    engine_name = "awq"
    by_outputs: bool = True


def read(config: Mapping[str, Any]) -> Awq | None:
    """The scheme, where the configuration is of it; older ones write w_bit and q_group_size."""
    if config.get("quant_method") != "awq":
        return None
    named = {"bits": config.get("bits", config.get("w_bit"))}
    named["group_size"] = config.get("group_size", config.get("q_group_size"))
    excluded = exclusions(config.get("modules_to_not_convert"), anywhere=True)
    return Awq(excluded, number(named, "bits", BITS), number(named, "group_size", GROUPS))
