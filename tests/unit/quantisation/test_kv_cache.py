"""The type of KV cache that a quantisation's configuration names."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.quantisation.kv_cache import named_cache_type

FP8_TABLE = {"dynamic": False, "num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("configs", "named"),
    [
        ([], "auto"),
        ([{"quant_algo": "NVFP4", "kv_cache_quant_algo": None}], "auto"),
        ([{"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}], "fp8"),
        ([{"quant_method": "modelopt", "kv_cache_scheme": FP8_TABLE}], "fp8"),
        ([{"quant_method": "compressed-tensors", "kv_cache_scheme": {**FP8_TABLE, "strategy": "tensor"}}], "fp8"),
        ([{"kv_cache_scheme": "FP8"}], "fp8"),
        ([{"kv_cache_scheme": {"num_bits": 4, "type": "float"}}], "nvfp4"),
        # Qwen3.6-35B-A3B-NVFP4: config.json says nothing, the file beside it does
        ([{"quant_algo": "MIXED_PRECISION"}, {"kv_cache_quant_algo": "FP8"}], "fp8"),
        ([{"kv_cache_scheme": {"num_bits": 8, "type": "int"}}], "auto"),
        ([{"kv_cache_scheme": {"num_bits": [8], "type": "float"}}], "auto"),
        ([{"kv_cache_quant_algo": "INT3"}], "auto"),
        ([{"kv_cache_quant_algo": 8}], "auto"),
    ],
)
def test_the_first_type_that_engines_know_counts(configs: list[dict[str, Any]], named: str) -> None:
    assert named_cache_type(configs) == named
