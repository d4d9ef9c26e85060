"""Where plans and engines differ, and why."""

from __future__ import annotations

from rigup.service import EngineName

NO_ANSWER = (
    "Can't load image processor",
    "Failed to load the processor",
    "Fp8MoEMethod uses the new modular kernel initialization logic",
    "AttributeError: 'FakeTensor' object has no attribute 'weight_loader'",
)
"""What ends the judge of vLLM, and not the plan: files for pictures that nobody has stored and a repacking by DeepGEMM
that needs a card (0.25.1), and a parameter of Kimi K3 whose attribute tensors without storage do not have (0.33.0)."""

_SHORT = "NVFP4 quantization requires the following fields in hf_quant_config.json: ['group_size', 'exclude_modules']"
_SHORT_TOO = "Cannot find 'quant_algo' in the model's quantization config."
REFUSED: dict[EngineName, dict[str, str]] = {
    "vllm": {
        "meta-models/Muse-Spark-Open-816B-A42B": "'MuseSparkTextConfig' object has no attribute 'hidden_act'",
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
_ON_B200 = "what B200's kernels fill up is counted by a rule that other models hold: more than the engine has"
WEIGHTS: dict[str, dict[str, str]] = {
    "0.33.0": {
        "google/gemma-4-26B-A4B-it on 8x B200": _ON_B200,
        "nvidia/Gemma-4-26B-A4B-NVFP4 on 8x B200": f"{_ON_B200}, whose experts are not repacked here",
        "openai/gpt-oss-120b on 2x H100": "Triton's layout takes less than what is filled up: 3.4 %",
        "openai/gpt-oss-20b on 2x H100": "Triton's layout takes less than what is filled up: 1.3 %",
        "Qwen/Qwen3-VL-": "the vision tower: up to 7 % of a rank of the 8B model more than planned, not explained yet",
        "meta-models/Muse-Glimmer-30B": "the vision tower: 4 % less than planned, not explained yet",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": "what is repacked of its experts: 3 % more, not explained yet",
        "openai/gpt-oss-120b on 8x B200": "FlashInfer would compile what repacks its experts: 2 % less is planned",
        "openai/gpt-oss-20b on 8x B200": "FlashInfer would compile what repacks its experts: 1.6 % less is planned",
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

_KINDS = "kinds of layers differ in what a step holds, and a GPU's few are counted as the sample's many"
_WHOLE = "weights of 16 bits are counted as at the shortest context"
_COPIES = "a place for copies of experts is broken up in some of its plans, in which alone two are held"
_CONVERTED = "what a quantised cache converts is free before the widest layer needs its room"
_SLIDING = "a GPU whose layers all look at a window has no mask"
BUFFERS = {
    "AngelSlim/Hy3-GGUF BF16": _WHOLE,
    "AngelSlim/Hy4-preview-GGUF Q8_0": _KINDS,
    "ggml-org/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-GGUF": _COPIES,
    "unsloth/DeepSeek-V3.2-GGUF": _KINDS,
    "unsloth/DeepSeek-V4-": _KINDS,
    "unsloth/GLM-4.5-Air-GGUF BF16": _WHOLE,
    "unsloth/GLM-5.2-GGUF": _KINDS,
    "unsloth/GLM-5.3-GGUF": _KINDS,
    "unsloth/GLM-5.3-Flash-GGUF": _COPIES,
    "unsloth/Kimi-K3-GGUF": _KINDS,
    "unsloth/Llama-3.3-70B-Instruct-GGUF Q4_K_M on 2x RTX 4090": _CONVERTED,
    "unsloth/MiMo-V2.5-GGUF Q8_0 on 4x RTX 3090": _SLIDING,
    "unsloth/Nemotron-3-Nano-30B-A3B-GGUF": _COPIES,
    "unsloth/MiniMax-M3-GGUF BF16": _COPIES,
    "unsloth/Mistral-Small-4-119B-2603-GGUF Q4_K_M": _COPIES,
    "unsloth/NVIDIA-Nemotron-3-Super-120B-A12B-GGUF": f"{_COPIES}; a GPU none of whose layers attends has no mask",
    "unsloth/Qwen3.5-122B-A10B-GGUF BF16": _WHOLE,
    "unsloth/gemma-4-26B-A4B-it-GGUF": _COPIES,
    "unsloth/gpt-oss-120b-GGUF Q8_0 on 2x RTX 5090": _CONVERTED,
}
"""Files whose buffers are counted higher on some cards, by the beginning of a plan's name."""
