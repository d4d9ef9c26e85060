"""MXFP4 as gpt-oss has it: the experts in blocks of 32 four-bit floats with a shared exponent, the rest in bf16.

Two weights are in each byte of `_blocks`; `_scales` has the exponents. Source: transformers 5.23.0
integrations/mxfp4.py; the OCP Microscaling formats specification v1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.scheme import Scheme, StoredPart, exclusions, groups

GROUP = 32


@dataclass(frozen=True)
class Mxfp4(Scheme):
    """Experts are quantised."""

    engine_name = "mxfp4"
    catalogue = "mxfp4"

    def leaves(self, module: str) -> bool:
        """Also all but experts."""
        return super().leaves(module) or ".experts" not in module

    def quantised(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """Blocks and exponents of a matrix; those of all experts of a layer are stacked by who stores them."""
        count = groups(columns, GROUP)
        return (
            StoredPart("_blocks", "U8", (rows, count, GROUP // 2)),
            StoredPart("_scales", "U8", (rows, count)),
        )

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """Two to a byte."""
        return super().weights(name, dtype, elements) * (2 if name.endswith("_blocks") else 1)


def read(config: Mapping[str, Any]) -> Mxfp4 | None:
    """The scheme, where the configuration is of it."""
    if config.get("quant_method") != "mxfp4":
        return None
    return Mxfp4(exclusions(config.get("modules_to_not_convert"), anywhere=True))
