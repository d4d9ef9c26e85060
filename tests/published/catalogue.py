"""Writes the toolkit's catalogue of models that people run: each entry as `rigup model add` makes it.

    python -m tests.published.catalogue [MODEL...]

Each checkpoint is made as sparse files (checkpoint.py), described by the command's own code, and written to
src/rigup/catalogue/data/. What was not read from a hub says so in its source: the shapes follow the configuration, the
bytes are computed, and `rigup lock` takes the sizes of the files. GGUF: the types that llama.cpp's quantize gives
each tensor (src/llama-quant.cpp of b11434), without what a publisher changes.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.checkpoints.config import Config
from rigup.checkpoints.describe import describe
from rigup.checkpoints.entry_text import checkpoint_text, model_text
from rigup.checkpoints.facts import is_tied
from rigup.checkpoints.part_sums import sums_of, tensor_bytes
from rigup.checkpoints.places import place_of
from rigup.checkpoints.repository import local_repository
from rigup.checkpoints.tensor import Tensor
from rigup.quantisation.ggml_types import GGML_TYPES
from rigup.quantisation.gguf import Gguf
from tests.published.checkpoint import layers_of, write
from tests.published.collect import read_configs, read_shapes

DATA = Path(__file__).parents[2] / "src/rigup/catalogue/data"
COMMENT = "Written by python -m tests.published.catalogue from published configurations."
BLOCK_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
CHANNEL_FP8 = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head", "re:.*mlp\\.gate$"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "float",
                "strategy": "token",
                "symmetric": True,
                "dynamic": True,
            },
        }
    },
}
ASSUMED: dict[str, dict[str, Any]] = {
    "fp8": BLOCK_FP8,
    "fp8_channel": CHANNEL_FP8,
    "fp8_tensor": {"quant_method": "fp8", "activation_scheme": "static"},
    "mxfp8": {"quant_method": "modelopt", "quant_algo": "MXFP8"},
}
ASSUMED_WHY = {
    "fp8_channel": "assumed: scales per channel, as in SGLang 0.5.23's tuned kernels of its shape, E=161,N=192 with "
    "per_channel_quant; 192 columns are not whole blocks of 128",
}
FILES = re.compile(r"headers of (\d+ files|model\.safetensors)")
TYPES = {kind.name: kind for kind in GGML_TYPES.values()}
RECIPES = "vllm-project/recipes@8959cf6"


@dataclass(frozen=True)
class Published:
    """One model. config, shapes: repositories in configs.json and shapes.json that its shapes are of.

    checkpoints: repository to the repository whose configuration says how it is stored; "bf16", "fp8" for those of that
    kind whose own configuration nobody has stored. gguf: repository. context, context_source: where another than in the
    configuration is published. draft: weights of built-in draft layers. draft_layers, draft_source: how many there are,
    and who says so, where the stored configuration does not. bytes: published sizes. quants: of the GGUF
    repository. experts: the type that experts keep in each of them. also_known_as: the class in vLLM and SGLang, where
    the configuration names another. flags: what an engine needs for it, by engine. by_hand: the model's own file and
    its other checkpoints are written by hand. mistral_class, mistral_source: of repositories in Mistral's own format.
    """

    name: str
    shapes: str
    config: str
    checkpoints: dict[str, str]
    gguf: str = ""
    gguf_architecture: str = ""
    context: int = 0
    context_source: str = ""
    draft: int = 0
    draft_layers: int = 0
    draft_source: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    bytes: dict[str, tuple[int, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    quants: tuple[str, ...] = ("BF16", "Q8_0", "Q4_K_M")
    experts: str = ""
    also_known_as: tuple[str, ...] = ()
    flags: dict[str, dict[str, str]] = field(default_factory=dict)
    by_hand: bool = False
    mistral_class: str = ""
    mistral_source: str = ""


def from_recipe(path: str) -> str:
    return f"{RECIPES} models/{path}.yaml"


MODELS = (
    Published(
        "Qwen3.8-27B",
        "Qwen/Qwen3.5-27B",
        "Qwen/Qwen3.5-27B",
        {"Qwen/Qwen3.8-27B": "bf16", "Qwen/Qwen3.8-27B-FP8": "fp8"},
        "unsloth/Qwen3.8-27B-GGUF",
        "qwen35",
        draft=424_673_280,
        versions={"vllm": "0.17.0", "sglang": "0.5.9"},
        bytes={
            "Qwen/Qwen3.8-27B": (55_563_006_776, f"{from_recipe('Qwen/Qwen3.8-27B')}, a comment"),
            "Qwen/Qwen3.8-27B-FP8": (30_866_866_928, f"{from_recipe('Qwen/Qwen3.8-27B')}, a comment"),
        },
        notes=("shapes of Qwen3.5-27B: the same class and as many linear layers; its own configuration was not read",),
    ),
    Published(
        "Qwen3.6-27B",
        "Qwen/Qwen3.5-27B",
        "nvidia/Qwen3.6-27B-NVFP4",
        {
            "Qwen/Qwen3.6-27B": "bf16",
            "Qwen/Qwen3.6-27B-FP8": "fp8",
            "nvidia/Qwen3.6-27B-NVFP4": "nvidia/Qwen3.6-27B-NVFP4",
        },
        "unsloth/Qwen3.6-27B-GGUF",
        "qwen35",
        draft=424_673_280,
        versions={"vllm": "0.17.0", "sglang": "0.5.9"},
    ),
    Published(
        "Qwen3.6-35B-A3B",
        "Qwen/Qwen3.6-35B-A3B",
        "Qwen/Qwen3.6-35B-A3B",
        {
            "Qwen/Qwen3.6-35B-A3B": "bf16",
            "Qwen/Qwen3.6-35B-A3B-FP8": "fp8",
            "nvidia/Qwen3.6-35B-A3B-NVFP4": "nvidia/Qwen3.6-35B-A3B-NVFP4",
        },
        "unsloth/Qwen3.6-35B-A3B-GGUF",
        "qwen35moe",
        draft=844_630_016,
        versions={"vllm": "0.17.0", "sglang": "0.5.9"},
    ),
    Published(
        "Qwen3.5-122B-A10B",
        "Qwen/Qwen3.5-122B-A10B",
        "Qwen/Qwen3.5-122B-A10B",
        {
            "Qwen/Qwen3.5-122B-A10B": "bf16",
            "Qwen/Qwen3.5-122B-A10B-FP8": "fp8",
            "nvidia/Qwen3.5-122B-A10B-NVFP4": "nvidia/Qwen3.5-122B-A10B-NVFP4",
        },
        "unsloth/Qwen3.5-122B-A10B-GGUF",
        "qwen35moe",
        draft=2_523_663_360,
        versions={"vllm": "0.17.0", "sglang": "0.5.9"},
    ),
    Published(
        "Qwen3.5-397B-A17B",
        "Qwen/Qwen3.5-397B-A17B",
        "Qwen/Qwen3.5-397B-A17B",
        {
            "Qwen/Qwen3.5-397B-A17B": "bf16",
            "Qwen/Qwen3.5-397B-A17B-FP8": "Qwen/Qwen3.5-397B-A17B-FP8",
            "nvidia/Qwen3.5-397B-A17B-NVFP4": "nvidia/Qwen3.5-397B-A17B-NVFP4",
        },
        "unsloth/Qwen3.5-397B-A17B-GGUF",
        "qwen35moe",
        draft=6_595_547_136,
        versions={"vllm": "0.17.0", "sglang": "0.5.9"},
    ),
    Published(
        "Qwen3-235B-A22B-Instruct-2507",
        "Qwen/Qwen3-235B-A22B",
        "Qwen/Qwen3-235B-A22B",
        {
            "Qwen/Qwen3-235B-A22B-Instruct-2507": "bf16",
            "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": "Qwen/Qwen3-235B-A22B-FP8",
            "nvidia/Qwen3-235B-A22B-Instruct-2507-NVFP4": "nvidia/Qwen3-235B-A22B-NVFP4",
        },
        "unsloth/Qwen3-235B-A22B-Instruct-2507-GGUF",
        "qwen3moe",
        262_144,
        from_recipe("Qwen/Qwen3-235B-A22B-Instruct-2507"),
        versions={"vllm": "0.12.0", "sglang": "0.5.9"},
    ),
    Published(
        "Qwen3-Coder-480B-A35B-Instruct",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        {"Qwen/Qwen3-Coder-480B-A35B-Instruct": "bf16", "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": "fp8"},
        "unsloth/Qwen3-Coder-480B-A35B-Instruct-GGUF",
        "qwen3moe",
        versions={"vllm": "0.12.0", "sglang": "0.5.9"},
    ),
    Published(
        "gpt-oss-120b",
        "openai/gpt-oss-120b",
        "openai/gpt-oss-120b",
        {"openai/gpt-oss-120b": "openai/gpt-oss-120b"},
        "unsloth/gpt-oss-120b-GGUF",
        "gpt-oss",
        versions={"vllm": "0.12.0", "sglang": "0.5.9"},
        quants=("Q8_0", "Q4_K_M"),
        experts="MXFP4",
        notes=("the repository also has original/ and metal/, 196 GB in all; rigup takes the weights alone",),
    ),
    Published(
        "gpt-oss-20b",
        "openai/gpt-oss-20b",
        "openai/gpt-oss-20b",
        {"openai/gpt-oss-20b": "openai/gpt-oss-20b"},
        "unsloth/gpt-oss-20b-GGUF",
        "gpt-oss",
        versions={"vllm": "0.12.0", "sglang": "0.5.9"},
        quants=("Q8_0", "Q4_K_M"),
        experts="MXFP4",
    ),
    Published(
        "GLM-4.7",
        "zai-org/GLM-4.7-FP8",
        "zai-org/GLM-4.7-FP8",
        {"zai-org/GLM-4.7": "bf16", "zai-org/GLM-4.7-FP8": "fp8_channel"},
        "unsloth/GLM-4.7-GGUF",
        "glm4moe",
        draft=5_200_000_000,
        draft_layers=1,
        draft_source=f"{from_recipe('zai-org/GLM-4.7')}: 358B and built-in MTP; transformers 5.23.0: one layer",
        versions={"vllm": "0.12.0", "sglang": "0.5.9"},
    ),
    Published(
        "Hy3",
        "tencent/Hy3",
        "tencent/Hy3",
        {"tencent/Hy3": "bf16", "tencent/Hy3-FP8": "fp8"},
        "AngelSlim/Hy3-GGUF",
        "hy_v3",
        262_144,
        from_recipe("tencent/Hy3"),
        draft=3_800_000_000,
        draft_layers=1,
        draft_source=f"{from_recipe('tencent/Hy3')}: a 3.8B MTP layer",
        versions={"vllm": "0.26.0", "sglang": "0.5.11"},
    ),
    Published(
        "Step-3.7-Flash",
        "stepfun-ai/Step-3.7-Flash.defaults",
        "stepfun-ai/Step-3.7-Flash",
        {"stepfun-ai/Step-3.7-Flash": "bf16", "stepfun-ai/Step-3.7-Flash-FP8": "stepfun-ai/Step-3.7-Flash-FP8"},
        "unsloth/Step-3.7-Flash-GGUF",
        "step35",
        262_144,
        from_recipe("stepfun-ai/Step-3.7-Flash"),
        versions={"vllm": "0.23.0", "sglang": "0.5.13"},
        also_known_as=("Step3p7ForConditionalGeneration",),
        notes=("its config.json says 65,536 tokens, the recipe 262,144",),
    ),
    Published(
        "Llama-3.3-70B-Instruct",
        "meta-llama/Llama-3.1-70B-Instruct",
        "meta-llama/Llama-3.1-70B-Instruct",
        {
            "meta-llama/Llama-3.3-70B-Instruct": "bf16",
            "nvidia/Llama-3.3-70B-Instruct-FP8": "nvidia/Llama-3.1-70B-Instruct-FP8",
        },
        "unsloth/Llama-3.3-70B-Instruct-GGUF",
        "llama",
        versions={"vllm": "0.12.0", "sglang": "0.5.9"},
    ),
    Published(
        "gemma-4-31B-it",
        "nvidia/Gemma-4-31B-IT-NVFP4",
        "nvidia/Gemma-4-31B-IT-NVFP4",
        {"google/gemma-4-31B-it": "bf16", "nvidia/gemma-4-31B-it-NVFP4": "nvidia/Gemma-4-31B-IT-NVFP4"},
        "unsloth/gemma-4-31B-it-GGUF",
        "gemma4",
        versions={"vllm": "0.19.1", "sglang": "0.5.11"},
    ),
    Published(
        "gemma-4-26B-A4B-it",
        "google/gemma-4-26B-A4B",
        "google/gemma-4-26B-A4B",
        {"google/gemma-4-26B-A4B-it": "bf16", "nvidia/Gemma-4-26B-A4B-NVFP4": "nvidia/Gemma-4-26B-A4B-NVFP4"},
        "unsloth/gemma-4-26B-A4B-it-GGUF",
        "gemma4",
        versions={"vllm": "0.19.1", "sglang": "0.5.11"},
    ),
    Published(
        "DeepSeek-V3.2",
        "deepseek-ai/DeepSeek-V3.2",
        "deepseek-ai/DeepSeek-V3.2",
        {
            "deepseek-ai/DeepSeek-V3.2": "deepseek-ai/DeepSeek-V3.2",
            "nvidia/DeepSeek-V3.2-NVFP4": "nvidia/DeepSeek-V3.2-NVFP4",
        },
        "unsloth/DeepSeek-V3.2-GGUF",
        "deepseek32",
        draft=11_610_030_080,
        versions={"vllm": "0.18.0", "sglang": "0.5.9"},
    ),
    Published(
        "GLM-5.2",
        "zai-org/GLM-5.2",
        "zai-org/GLM-5.2",
        {
            "zai-org/GLM-5.2-FP8": "zai-org/GLM-5.2-FP8",
            "zai-org/GLM-5.2": "bf16",
            "nvidia/GLM-5.2-NVFP4": "nvidia/GLM-5.2-NVFP4",
        },
        "unsloth/GLM-5.2-GGUF",
        "glm-dsa",
        draft=9_943_515_136,
        versions={"vllm": "0.23.0"},
    ),
    Published(
        "Kimi-K2.6",
        "moonshotai/Kimi-K2.5",
        "moonshotai/Kimi-K2.5",
        {"moonshotai/Kimi-K2.6": "moonshotai/Kimi-K2.5"},
        "unsloth/Kimi-K2.6-GGUF",
        "deepseek2",
        versions={"vllm": "0.25.0", "sglang": "0.5.9"},
    ),
    Published(
        "Mistral-Small-4-119B-2603",
        "mistralai/Mistral-Small-4-119B-2603",
        "mistralai/Mistral-Small-4-119B-2603",
        {"mistralai/Mistral-Small-4-119B-2603": "fp8_tensor"},
        "unsloth/Mistral-Small-4-119B-2603-GGUF",
        "mistral4",
        262_144,
        from_recipe("mistralai/Mistral-Small-4-119B-2603"),
        versions={"vllm": "0.20.0", "sglang": "0.5.23"},
        mistral_class="PixtralForConditionalGeneration",
        mistral_source=f"{from_recipe('mistralai/Mistral-Small-4-119B-2603')}: text and images; "
        "vLLM 0.33.0 transformers_utils/configs/mistral.py: _remap_mistral_vision_args",
    ),
    Published(
        "DeepSeek-V4-Flash-0731",
        "deepseek-ai/DeepSeek-V4-Flash",
        "deepseek-ai/DeepSeek-V4-Flash",
        {"deepseek-ai/DeepSeek-V4-Flash-0731": "deepseek-ai/DeepSeek-V4-Flash"},
        "unsloth/DeepSeek-V4-Flash-0731-GGUF",
        "deepseek4",
        versions={"vllm": "0.25.0", "sglang": "0.5.12"},
        quants=("UD-Q4_K_XL=Q8_0",),
        experts="MXFP4",
    ),
    Published(
        "DeepSeek-V4-Pro-0813",
        "deepseek-ai/DeepSeek-V4-Pro",
        "deepseek-ai/DeepSeek-V4-Pro",
        {"deepseek-ai/DeepSeek-V4-Pro-0813": "deepseek-ai/DeepSeek-V4-Pro"},
        "unsloth/DeepSeek-V4-Pro-0813-GGUF",
        "deepseek4",
        versions={"vllm": "0.25.0", "sglang": "0.5.12"},
        quants=("UD-Q4_K_XL=Q8_0",),
        experts="MXFP4",
    ),
    Published(
        "NVIDIA-Nemotron-3-Super-120B-A12B",
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
        {
            "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": "bf16",
            "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
            "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
        },
        "unsloth/NVIDIA-Nemotron-3-Super-120B-A12B-GGUF",
        "nemotron_h_moe",
        versions={"vllm": "0.17.1", "sglang": "0.5.9"},
    ),
    Published(
        "NVIDIA-Nemotron-3-Ultra-550B-A55B",
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
        "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
        {
            "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "bf16",
            "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4",
        },
        "unsloth/NVIDIA-Nemotron-3-Ultra-550B-A55B-GGUF",
        "nemotron_h_moe",
        versions={"vllm": "0.22.0", "sglang": "0.5.9"},
        quants=("UD-Q4_K_M=Q4_K_M",),
    ),
    Published(
        "NVIDIA-Nemotron-3.5-Lightning-30B-A3B",
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4",
        "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4",
        {
            "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4",
            "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": "bf16",
        },
        "ggml-org/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-GGUF",
        "nemotron_h_moe",
        versions={"vllm": "0.27.1", "sglang": "0.5.9"},
    ),
    Published(
        "MiMo-V2.5",
        "XiaomiMiMo/MiMo-V2-Flash",
        "XiaomiMiMo/MiMo-V2-Flash",
        {"XiaomiMiMo/MiMo-V2.5": "XiaomiMiMo/MiMo-V2-Flash"},
        "unsloth/MiMo-V2.5-GGUF",
        "mimo2",
        1_048_576,
        from_recipe("XiaomiMiMo/MiMo-V2.5"),
        draft=987_758_592,
        draft_layers=3,
        draft_source="llama.cpp conversion/mimo.py: three layers in each MiMo V2, which its config.json does not say; "
        "vLLM 0.32.0 mimo_v2_mtp.py: a window and a dense feed-forward layer; it runs the first one",
        versions={"vllm": "0.21.0", "sglang": "0.5.11"},
        notes=(
            "shapes of MiMo-V2-Flash, near the 311 billion that the recipe names; its own configuration was not read",
        ),
    ),
    Published(
        "MiniMax-M3",
        "MiniMaxAI/MiniMax-M3",
        "MiniMaxAI/MiniMax-M3",
        {"nvidia/MiniMax-M3-NVFP4": "nvidia/MiniMax-M3-NVFP4"},
        "unsloth/MiniMax-M3-GGUF",
        "minimax-m3",
        versions={"vllm": "0.24.0", "sglang": "0.5.23"},
        notes=("computed without the vision tower, of less than one billion weights",),
        quants=("BF16", "Q8_0"),
        flags={"vllm": {"--block-size": "128"}},
        by_hand=True,
    ),
    Published(
        "GLM-5.3-Flash",
        "zai-org/GLM-5.3-Flash",
        "zai-org/GLM-5.3-Flash",
        {"zai-org/GLM-5.3-Flash": "fp8"},
        "unsloth/GLM-5.3-Flash-GGUF",
        "glm5-next",
        draft=7_400_000_000,
        draft_layers=1,
        draft_source="vLLM 0.32.0 models/glm5next/common/mtp.py: latent, with an indexer; one has 7.4 billion weights",
        versions={"vllm": "0.30.0", "sglang": "0.5.20"},
        bytes={"zai-org/GLM-5.3-Flash": (328_300_000_000, "huggingface.co/api/models/zai-org/GLM-5.3-Flash: 328.3 GB")},
        notes=("shapes of the class's defaults; with draft layers 321 billion weights, as published",),
    ),
    Published(
        "Hy4-preview",
        "tencent/Hy4-preview",
        "tencent/Hy4-preview",
        {"tencent/Hy4-preview": "bf16", "tencent/Hy4-preview-FP8": "mxfp8"},
        "AngelSlim/Hy4-preview-GGUF",
        "hy_v4",
        draft=10_000_000_000,
        draft_layers=1,
        draft_source="vLLM 0.32.0 models/hy_v4/nvidia/mtp.py: one layer, with an indexer of its own",
        versions={"vllm": "0.29.0", "sglang": "0.5.20"},
        bytes={
            "tencent/Hy4-preview": (1_560_000_000_000, "huggingface.co/api/models/tencent/Hy4-preview: 1,560.0 GB"),
            "tencent/Hy4-preview-FP8": (813_800_000_000, "huggingface.co/api/models/tencent/Hy4-preview-FP8: 813.8 GB"),
        },
        notes=("its own configuration was not read: sizes are those of a public port, and their sum is as published",),
        quants=("Q8_0", "Q4_K_M"),
    ),
    Published(
        "Kimi-K3",
        "moonshotai/Kimi-K3",
        "moonshotai/Kimi-K3",
        {"moonshotai/Kimi-K3": "moonshotai/Kimi-K3"},
        "unsloth/Kimi-K3-GGUF",
        "kimi-k3",
        versions={"vllm": "0.27.1", "sglang": "0.5.17"},
        bytes={
            "moonshotai/Kimi-K3": (1_560_940_000_000, "huggingface.co/api/models/moonshotai/Kimi-K3/tree: 1,560.94 GB")
        },
        notes=("shapes of transformers' Kimi Linear and SGLang 0.5.23 models/kimi_k3.py, without the vision tower",),
        quants=("UD-Q4_K_XL=Q8_0",),
        experts="MXFP4",
    ),
    Published(
        "Muse-Spark-Open-816B-A42B",
        "meta-models/Muse-Spark-Open-816B-A42B",
        "meta-models/Muse-Spark-Open-816B-A42B",
        {"meta-models/Muse-Spark-Open-816B-A42B": "bf16"},
        versions={"vllm": "0.33.0", "sglang": "0.5.23"},
        notes=("shapes of the class's defaults: its own configuration was not read",),
    ),
    Published(
        "Mistral-Large-4-1T-A52B",
        "mistralai/Mistral-Large-4-1T-A52B",
        "mistralai/Mistral-Large-4-1T-A52B",
        {"mistralai/Mistral-Large-4-1T-A52B": "bf16"},
        notes=("shapes of the class's defaults: its own configuration was not read, and neither how it is stored",),
    ),
)

CONFIGS, SHAPES = read_configs(), read_shapes()
MAKERS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "makers.toml").read_text())
UNKNOWN = {"license": "no licence", "sampling": "no advice on sampling"}


def configuration(published: Published, stored_as: str) -> dict[str, Any]:
    """Of a checkpoint: "config", and "hf_quant_config" where its repository has one."""
    entry: dict[str, Any] = {"config": {**CONFIGS[published.config]["config"]}}
    of = CONFIGS.get(stored_as)
    entry["config"].pop("quantization_config", None)
    draft = {"num_nextn_predict_layers": published.draft_layers} if published.draft_layers else {}
    if of is not None:
        entry = {key: value for key, value in of.items() if key != "source"}
    elif stored_as in ASSUMED:
        entry["config"]["quantization_config"] = ASSUMED[stored_as]
    entry["config"] = {**entry["config"], **draft}
    if "text_config" in entry["config"]:
        entry["config"]["text_config"] = {**entry["config"]["text_config"], **draft}
    return entry


def safetensors(published: Published, repo: str, stored_as: str) -> tuple[Model, CheckpointEntry]:
    """One checkpoint, through the command's own code."""
    entry, of = configuration(published, stored_as), CONFIGS.get(stored_as)
    assumed = ASSUMED.get(stored_as)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / repo.rpartition("/")[2]
        write(path, entry, SHAPES[published.shapes])
        label = f"{CONFIGS[published.config]['source']}; shapes by transformers 5.23.0"
        repository = replace(local_repository(path, repo), label=label, where=repo)
        found = describe(repository, None, {}, published.name)
    told = of["source"] if of else ASSUMED_WHY.get(stored_as, f"assumed for {stored_as}") if assumed else "unquantised"
    checkpoint = found.checkpoint if of else found.checkpoint.model_copy(update={"kv_cache_type": None})
    return found.model, completed(published, repo, checkpoint, f"computed from the shapes, stored as: {told}")


def completed(published: Published, repo: str, entry: CheckpointEntry, computed: str) -> CheckpointEntry:
    """The entry with draft layers, what is published of its size, and true sources."""
    table, size = entry.tensors, entry.bytes
    assert table is not None
    if published.draft:
        draft = published.draft * (1 if entry.scheme.startswith(("fp8", "mxfp8")) else 2)
        table, size = table.model_copy(update={"mtp": draft}), size + draft
    known = published.bytes.get(repo)
    why = known[1] if known else f"{computed}; rigup lock takes the sizes of the files"
    ggml = entry.scheme == "gguf"
    oldest = f"{RECIPES} and SGLang's wheels; not below the oldest release that rigup supports"
    versions = {"llama.cpp": "b11434"} if ggml else published.versions
    return entry.model_copy(
        update={
            "tensors": table,
            "bytes": known[0] if known else size,
            "bytes_exact": bool(known),
            "shards": None,
            "entry": "",
            "minimum_versions": versions,
            "engine_flags": {} if ggml else published.flags,
            "mistral_class": "" if ggml else published.mistral_class,
            "notes": published.notes,
            "sources": {
                "bytes": why,
                "tensors": computed,
                **({"kv_cache_type": computed.partition("stored as: ")[2]} if entry.kv_cache_type else {}),
                "minimum_versions": "the release that rigup supports" if ggml else oldest,
                **({"mistral_class": published.mistral_source} if published.mistral_class and not ggml else {}),
            },
        }
    )


def gguf(published: Published, quant: str) -> CheckpointEntry:
    """One quantisation in GGUF, computed."""
    entry = CONFIGS[published.config]
    config = Config(entry["config"], published.config)
    layers, tied = layers_of(entry), is_tied(config)
    quant, _, kind = quant.partition("=")
    kept = KEPT.get(published.gguf_architecture, {})
    tensors = list(gguf_tensors(SHAPES[published.shapes], layers, kind or quant, tied, published.experts, kept))
    sums = sums_of(published.gguf, tensors, layers, Gguf(), tied=False)
    table = tensor_bytes(sums)
    mix = f"{kind or quant}, experts in {published.experts}," if published.experts else kind or quant
    how = f"computed from the shapes: {mix} by the rules of llama.cpp b11434, src/llama-quant.cpp"
    if published.draft:
        how += "; without draft layers, which a file may have or lack (llama.cpp pull request 25641)"
    found = CheckpointEntry(
        repo=published.gguf, model=published.name, quant=quant, scheme="gguf", bytes=table.total, tensors=table
    )
    return completed(replace(published, draft=0), published.gguf, found, how)


# Matrices that llama-quantize leaves as the converter wrote them, in BF16, and that it gives Q8_0 in any mix: those of
# GLM-5.3-Flash. Source: src/llama-quant.cpp of b11434, tensor_allows_quantization and llama_tensor_get_type.
KEPT = {
    "glm5-next": {
        "BF16": r"\.(kv_a_proj_with_mqa|kv_b_proj|[fg]_[ab]_proj|b_proj|wq_b|wk|weights_proj)\.weight$|compress_gate$",
        "Q8_0": r"\.q_[ab]_proj\.weight$",
    },
}
# Written in float32, and left so, as MiniMax's indexer is.
EXACT = ("conv1d", "bias", "index_q_proj", "index_k_proj")
# What llama-quantize takes for rows that are not whole blocks: src/llama-quant.cpp of b11434, tensor_type_fallback.
SMALLER_BLOCKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def gguf_tensors(
    shapes: list[tuple[str, tuple[int, ...]]],
    layers: int,
    quant: str,
    tied: bool,
    experts: str = "",
    kept: dict[str, str] | None = None,
) -> Iterator[Tensor]:
    """Tensors with the types of a quantisation. Vision goes to a file of its own and is left out.

    A row that is not whole blocks takes the next type with smaller blocks. kept: patterns of those of a type of their
    own, in mixes of fewer bits.
    """
    for name, shape in shapes:
        place = place_of(name, layers)
        elements = math.prod(shape)
        if place.part == "vision":
            continue
        kind = _type(name, place, layers, quant, tied)
        if (
            len(shape) == 1
            or place.part in ("router", "norms")
            or any(part in name for part in ("conv1d", "bias", *EXACT))
        ):
            kind = "F32"
        elif of_its_own := [own for own, pattern in (kept or {}).items() if re.search(pattern, name)]:
            kind = of_its_own[0] if quant != "BF16" else quant
        elif place.part == "experts" and experts and "bias" not in name:
            kind = experts
        block = TYPES[kind]
        if shape and shape[-1] % block.elements:
            block = TYPES[SMALLER_BLOCKS.get(kind, kind)]
            block = block if shape[-1] % block.elements == 0 else TYPES["F16"]
        # llama.cpp's converter writes the halves of gate_up_proj as two tensors, unless told to fuse them.
        halves = 2 if place.part == "experts" and "gate_up_proj" in name and "bias" not in name else 1
        for _ in range(halves):
            yield Tensor(name, block.name, shape, elements // halves // block.elements * block.bytes)


def _type(name: str, place: Any, layers: int, quant: str, tied: bool) -> str:
    if quant != "Q4_K_M":
        return quant
    if place.part == "head" or (tied and place.part == "embedding"):
        return "Q6_K"
    number = place.layer or 0
    more = number < layers // 8 or number >= 7 * layers // 8 or (number - layers // 8) % 3 == 2
    return "Q6_K" if more and any(part in name for part in ("v_proj", "in_proj_qkv.", "down_proj")) else "Q4_K"


def said_by_maker(model: Model) -> Model:
    """The model with its licence, sampling, template flags and notes; what no source tells is said to be missing."""
    said = MAKERS[model.name]
    sources = {key: text.replace("hf/", "huggingface.co/") for key, text in said["sources"].items()}
    absent = [what for key, what in UNKNOWN.items() if key not in said]
    notes = (*said.get("notes", ()), *([f"{' and '.join(absent)} found in public sources"] if absent else ()))
    fields = {**model.model_dump(mode="json"), **said, "notes": notes, "sources": {**model.sources, **sources}}
    return Model.model_validate_json(json.dumps(fields))


def main(names: list[str]) -> None:
    """Writes every file, or those of the models named."""
    for published in MODELS:
        if names and published.name not in names:
            continue
        pairs = [safetensors(published, repo, kind) for repo, kind in published.checkpoints.items()]
        model = pairs[0][0]
        if published.by_hand:
            model = load_catalogue().models_by_name[published.name]
        entries = [entry for _, entry in pairs]
        if published.gguf:
            entries += [gguf(published, quant) for quant in published.quants]
        stem = published.name.lower().replace(".", "_").replace("-", "_")
        if published.by_hand:
            write_checkpoints(entries, model, f"{stem}_computed")
            continue
        update: dict[str, Any] = {}
        sources = model.sources
        if published.gguf_architecture:
            update["gguf_architecture"] = published.gguf_architecture
            sources = {**sources, "gguf_architecture": "names in xllamacpp 2026.10.11549"}
        if published.draft_source:
            sources = {**sources, "mtp_attention": published.draft_source}
        if published.also_known_as:
            update["architectures"] = (*model.architectures, *published.also_known_as)
        if published.context:
            update["context"] = published.context
            sources["context"] = published.context_source
        widest = max(entry.bytes * 8 / model.parameters for entry in (pair[1] for pair in pairs))
        update["reference_bits"] = 16 if widest > 12 else 8 if widest > 7 else 4.5
        sources = {key: FILES.sub("sum over the tensors", text) for key, text in sources.items()}
        model = said_by_maker(model.model_copy(update={**update, "sources": sources}))
        (DATA / "models" / f"{stem}.toml").write_text(model_text(model, COMMENT))
        write_checkpoints(entries, model, stem)


def write_checkpoints(entries: list[CheckpointEntry], model: Model, stem: str) -> None:
    """One file with the checkpoints of a model."""
    texts = [checkpoint_text(entry.model_copy(update={"model": model.name}), COMMENT) for entry in entries]
    whole = "\n".join([texts[0], *(text.partition("\n\n")[2] for text in texts[1:])])
    (DATA / "checkpoints" / f"{stem}.toml").write_text(whole)
    print(f"{model.name}: {len(entries)} checkpoints")


if __name__ == "__main__":
    main(sys.argv[1:])
