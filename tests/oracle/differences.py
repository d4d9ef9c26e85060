"""Where plans and engines differ, and why. Keys begin the names of pairs."""

from __future__ import annotations

REFUSED = {
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "SGLang reads quantization_config of its config.json, which "
    "is stored without",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": "its hf_quant_config.json is stored without group_size and "
    "exclude_modules",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": "its hf_quant_config.json is stored without group_size and "
    "exclude_modules",
    "tencent/Hy3": "defaults of its class lack what vLLM reads (expert_hidden_dim)",
    "tencent/Hy4-preview": "defaults of its class lack what vLLM reads",
    "meta-models/Muse-Spark-Open-816B-A42B": "defaults of its class",
    "moonshotai/Kimi-K3": "vLLM moves a parameter in a way that shapes alone do not bear",
}
"""Plans that the engine's code ends for what is missing in a stored configuration, not in the plan."""

_FP8_BY_ITSELF = "vLLM takes an FP8 cache by itself for GlmMoeDsaForCausalLM on 10.0; the plan counts bf16"
_SHARED_INDEX = "vLLM keeps index keys on 21 of its 78 layers, which the others share; the catalogue counts all"
TOKENS = {
    "nvidia/GLM-5.2-NVFP4 on 8x H200": _SHARED_INDEX,
    "zai-org/GLM-5.2-FP8 on 8x H200": _SHARED_INDEX,
    "zai-org/GLM-5.2 on 8x H200": _SHARED_INDEX,
    "nvidia/GLM-5.2-NVFP4 on 8x B200": _FP8_BY_ITSELF,
    "zai-org/GLM-5.2 on 8x B200": _FP8_BY_ITSELF,
    "zai-org/GLM-5.2-FP8 on 8x B200": _FP8_BY_ITSELF,
}
"""Plans whose cache holds another number of tokens."""
