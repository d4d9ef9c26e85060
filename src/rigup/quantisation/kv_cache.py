"""The type of KV cache that a checkpoint's configuration names, which engines take unless they are told another.

Keys and forms: ModelOpt's kv_cache_quant_algo ("FP8"), and its and compressed-tensors' kv_cache_scheme (a table).
Sources: vLLM 0.33.0 utils/torch_utils.py, get_kv_cache_quant_algo_string, and layers/attention/attention.py; SGLang
0.5.23 mem_cache/kv_cache_dtype.py and layers/quantization/modelopt_quant.py, which also reads hf_quant_config.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rigup.service import NamedCacheType

_BY_BITS: dict[Any, NamedCacheType] = {8: "fp8", 4: "nvfp4"}
_BY_NAME: dict[str, NamedCacheType] = {"fp8": "fp8", "nvfp4": "nvfp4"}


def named_cache_type(configs: Iterable[Mapping[str, Any]]) -> NamedCacheType:
    """The first type that one of the quantisation's configurations names; "auto" where none does.

    A form that neither engine follows counts as none.
    """
    named = (config.get(key) for config in configs for key in ("kv_cache_scheme", "kv_cache_quant_algo"))
    return next((kind for value in named if (kind := _kind(value)) is not None), "auto")


def _kind(value: Any) -> NamedCacheType | None:
    if isinstance(value, str):
        return _BY_NAME.get(value.lower())
    if isinstance(value, dict) and value.get("type") == "float" and type(value.get("num_bits")) is int:
        return _BY_BITS.get(value["num_bits"])
    return None
