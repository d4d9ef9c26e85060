"""FP8 as DeepSeek, Qwen and MiniMax publish it: "quant_method": "fp8".

With weight_block_size there is one float32 scale for each block (128 by 128), `weight_scale_inv`; without it one for
each matrix, `weight_scale`, and one for its inputs where activation_scheme is "static". DeepSeek V4 has its experts in
FP4 besides ("expert_dtype"). Sources: vLLM 0.33.0 quantization/fp8.py; the headers of MiniMaxAI/MiniMax-M2.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.scheme import Scheme, StoredPart, exclusions, groups

BLOCKS = (32, 64, 128, 256)
FP4_GROUP = 32


@dataclass(frozen=True)
class Fp8(Scheme):
    """block: rows and columns of a block, None for one scale a matrix. static: input scales are stored.

    experts_fp4: two weights of an expert are in each byte, and 32 share an exponent.
    """

    engine_name = "fp8"
    block: tuple[int, int] | None = None
    static: bool = False
    experts_fp4: bool = False

    @property
    def catalogue(self) -> str:
        """fp8_block128, or fp8_tensor."""
        return f"fp8_block{self.block[1]}" if self.block else "fp8_tensor"

    @property
    def of_experts(self) -> str | None:
        """MXFP4: FP4 with an exponent for 32. Source: vLLM 0.33.0 models/deepseek_v41/quant_config.py."""
        return "mxfp4" if self.experts_fp4 else None

    def quantised(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """The weights, and their scales."""
        if self.experts_fp4 and ".experts." in module:
            packed = StoredPart(".weight", "I8", (rows, columns // 2))
            return (packed, StoredPart(".scale", "F8_E8M0", (rows, groups(columns, FP4_GROUP))))
        weight = StoredPart(".weight", "F8_E4M3", (rows, columns))
        if self.block:
            shape = (-(-rows // self.block[0]), -(-columns // self.block[1]))
            return (weight, StoredPart(".weight_scale_inv", "F32", shape))
        scales = (StoredPart(".weight_scale", "F32", ()),)
        return (weight, *scales, *((StoredPart(".input_scale", "F32", ()),) if self.static else ()))

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """Two to a byte of an expert in FP4."""
        return super().weights(name, dtype, elements) * (2 if dtype == "I8" and self.experts_fp4 else 1)


def read(config: Mapping[str, Any]) -> Fp8 | None:
    """The scheme, where the configuration is of it."""
    if config.get("quant_method") != "fp8" or "quant_algo" in config:
        return None
    size = config.get("weight_block_size")
    if size is not None:
        if not isinstance(size, list) or len(size) != 2 or any(part not in BLOCKS for part in size):
            raise ValueError("weight_block_size: must be two sizes of 32, 64, 128 or 256")
        size = (size[0], size[1])
    skipped = config.get("modules_to_not_convert", config.get("ignored_layers"))
    return Fp8(
        exclusions(skipped, anywhere=True),
        block=size,
        static=config.get("activation_scheme") == "static",
        experts_fp4=config.get("expert_dtype") == "fp4",
    )
