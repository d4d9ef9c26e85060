"""Where plans and engines differ, and why."""

from __future__ import annotations

from rigup.service import EngineName

NO_ANSWER = (
    "Can't load image processor",
    "Failed to load the processor",
    "Fp8MoEMethod uses the new modular kernel initialization logic",
)
"""What ends the judge of vLLM 0.25.1, and not the plan: files for pictures that nobody has stored, and a repacking by
DeepGEMM that needs a card."""

_SHORT = "NVFP4 quantization requires the following fields in hf_quant_config.json: ['group_size', 'exclude_modules']"
_SHORT_TOO = "Cannot find 'quant_algo' in the model's quantization config."
REFUSED: dict[EngineName, dict[str, str]] = {
    "vllm": {
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": _SHORT,
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": _SHORT,
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "Unknown ModelOpt quant algo: MIXED_PRECISION",
        "tencent/Hy3": "'HYV3Config' object has no attribute 'expert_hidden_dim'",
        "tencent/Hy3-FP8": "'HYV3Config' object has no attribute 'expert_hidden_dim'",
    },
    "sglang": {
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "'NemotronHConfig' object has no attribute "
        "'quantization_config'",
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": _SHORT_TOO,
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": _SHORT_TOO,
        "MiniMaxAI/MiniMax-M3": "CLIPVisionConfig.__init__() missing",
        "nvidia/MiniMax-M3-NVFP4": "CLIPVisionConfig.__init__() missing",
        "XiaomiMiMo/MiMo-V2.5": "unhashable type: 'dict'",
        "Qwen/Qwen3.5-397B-A17B-FP8": "Unknown RoPE scaling type, rope_scaling is {}",
    },
}
"""What an engine says of a checkpoint whose stored configuration lacks it; the plan is not what it ends at."""

TOKENS = {
    "0.25.1": {
        "deepseek-ai/DeepSeek-V4-Flash-0731 on 4x RTX PRO 6000 Blackwell Server Edition": "1.6 % more than "
        "planned, equal in 0.33.0: unexplained",
    },
}
"""By release, plans whose cache holds another number of tokens, by the beginning of their name."""

_ON_HOPPER = (
    "openai/gpt-oss-20b on 2x H100",
    "openai/gpt-oss-120b on 2x H100",
    "openai/gpt-oss-120b on 8x H100",
    "openai/gpt-oss-120b on 8x H200",
)
WEIGHTS: dict[str, dict[str, str]] = {
    "0.33.0": {
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4 on 8x H100": "Humming repacks on the card, which the judge "
        "leaves out",
    },
    "0.5.23": {
        **dict.fromkeys(_ON_HOPPER, "Triton's layout: the judge may count what is freed"),
        "openai/gpt-oss-20b on 8x A100": "24 MiB less",
        "nvidia/gemma-4-31B-it-NVFP4 on 8x": "SGLang keeps values beside keys that are values, 52 MiB a rank, and a "
        "twentieth of the tower whole",
    },
}
"""By release, plans whose weights take another part of a rank, by the beginning of their name."""

FILES: dict[str, str] = {}
"""Files whose weights take another number of bytes, by the beginning of a plan's name."""

_LATENT = "counted with experts as wide as the model, which work in a latent, and with a mask where no layer attends"
BUFFERS = {
    "unsloth/NVIDIA-Nemotron-3-Super-120B-A12B-GGUF": _LATENT,
    "unsloth/NVIDIA-Nemotron-3-Ultra-550B-A55B-GGUF": _LATENT,
}
"""Files whose buffers are counted still higher, by the beginning of a plan's name."""
