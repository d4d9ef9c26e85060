"""GPTQ: "quant_method": "gptq" with bits and group_size. Source: vLLM 0.33.0 quantization/gptq.py, gptq_marlin.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.grouped_integers import BITS, GROUPS, GroupedIntegers
from rigup.quantisation.scheme import exclusions, number


@dataclass(frozen=True)
class Gptq(GroupedIntegers):
    """Packed by inputs."""

    engine_name = "gptq"


def read(config: Mapping[str, Any]) -> Gptq | None:
    """The scheme, where the configuration is of it."""
    if config.get("quant_method") != "gptq":
        return None
    rules = config.get("dynamic")
    skipped = [f"re:{key[2:]}" for key in rules if str(key).startswith("-:")] if isinstance(rules, dict) else None
    excluded = exclusions(config.get("modules_to_not_convert", skipped), anywhere=True)
    return Gptq(excluded, number(config, "bits", BITS), number(config, "group_size", GROUPS))
