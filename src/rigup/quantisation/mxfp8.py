"""MXFP8 as MiniMax publishes it: "quant_method": "mxfp8". FP8 weights, an exponent for each 32 of a row.

What ModelOpt writes as MXFP8 is the same but for names. Sources: vLLM 0.33.0 quantization/modelopt.py
(ModelOptMxFp8Config.from_config) and models/minimax_m3/nvidia/model.py (weight_scale_inv); SGLang 0.5.23
layers/quantization/fp8.py, which takes blocks of 1 by 32 whatever weight_block_size says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.scheme import Scheme, StoredPart, exclusions, groups

GROUP = 32


@dataclass(frozen=True)
class Mxfp8(Scheme):
    """One kind of weights in every quantised module."""

    engine_name = "mxfp8"
    catalogue = "mxfp8"

    def quantised(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """The weights, and their exponents."""
        weight = StoredPart(".weight", "F8_E4M3", (rows, columns))
        return (weight, StoredPart(".weight_scale_inv", "U8", (rows, groups(columns, GROUP))))


def read(config: Mapping[str, Any]) -> Mxfp8 | None:
    """The scheme, where the configuration is of it."""
    if config.get("quant_method") != "mxfp8" or "quant_algo" in config:
        return None
    excluded = config.get("ignored_layers", config.get("modules_to_not_convert"))
    return Mxfp8(exclusions(excluded, anywhere=True))
