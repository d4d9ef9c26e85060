"""What the engines are asked: the plans of every catalogue checkpoint on a fixed set of rigs.

A case is all that a judge needs of a plan: the small files of the repository, the cards, and the argv and environment
that the service would get. `digest` says which argv was judged; the answer keeps the size of the cache it was given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.kernels import KernelKey, kind_of
from rigup.plan import Build, Plan
from rigup.quantisation import read_scheme
from rigup.service import EngineName
from tests.published.catalogue import ASSUMED, CONFIGS, SHAPES, configuration
from tests.published.checkpoint import quantisation, stored
from tests.published.collect import CLASSES
from tests.published.models import MODELS
from tests.unit.planner.asking import catalogue, decided

RIGS = {
    "1x RTX 3090": 64,
    "4x RTX 3090": 256,
    "2x RTX 4090": 128,
    "2x RTX 5090": 128,
    "4x RTX PRO 6000 Blackwell Server Edition": 512,
    "8x RTX PRO 6000 Blackwell Server Edition": 1024,
    "8x A100-SXM4-80GB": 1024,
    "2x H100 80GB HBM3": 512,
    "8x H100 80GB HBM3": 1024,
    "8x H200": 1024,
    "8x B200": 2048,
    "1x GB10": 119,
}
"""GPUs and the host's memory in GiB."""

# Streaming multiprocessors, as NVIDIA's data sheets have them; engines size few things by them.
MULTIPROCESSORS = {
    "RTX 3090": 82,
    "RTX 4090": 128,
    "RTX 5090": 170,
    "RTX PRO 6000 Blackwell Server Edition": 188,
    "A100-SXM4-80GB": 108,
    "H100 80GB HBM3": 132,
    "H200": 132,
    "B200": 148,
    "GB10": 48,
}
NVLINK = ("A100", "H100", "H200", "B200")
# Words of a command up to the folder of the weights.
BEFORE = {
    "vllm": len(("bin/vllm", "serve", "FOLDER")),
    "sglang": len(("bin/python", "-m", "sglang.launch_server", "--model-path", "FOLDER")),
}
# Of the cache of all stages, what each is given: SGLang divides as much on each, of which the fullest needs all.
ROOM: dict[EngineName, Callable[[Iterable[int]], int]] = {"vllm": min, "sglang": max}
# What a plan is refused for because an engine said so is asked again.
NO_ATTENTION = "attention-kernels"
# Variables that decide what an engine does with the model.
DECIDING = ("VLLM_PP_LAYER_PARTITION", "SGLANG_PP_LAYER_PARTITION", "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_DEEP_GEMM")

# Checkpoints that are catalogued by hand: whose shapes they have, and the published configuration of how they are
# stored. Of the others nobody has stored one, so that they are not asked about.
M2, M3 = "MiniMaxAI/MiniMax-M2.5", "MiniMaxAI/MiniMax-M3"
BY_HAND = {
    "MiniMaxAI/MiniMax-M2": (M2, M2),
    "MiniMaxAI/MiniMax-M2.1": (M2, M2),
    "MiniMaxAI/MiniMax-M2.5": (M2, M2),
    "MiniMaxAI/MiniMax-M2.7": (M2, "MiniMaxAI/MiniMax-M2.7"),
    "nvidia/MiniMax-M2.5-NVFP4": (M2, "nvidia/MiniMax-M2.5-NVFP4"),
    "nvidia/MiniMax-M2.7-NVFP4": (M2, "nvidia/MiniMax-M2.7-NVFP4"),
    "MiniMaxAI/MiniMax-M3": (M3, M3),
    "nvidia/MiniMax-M3-NVFP4": (M3, "nvidia/MiniMax-M3-NVFP4"),
}
# No configuration of M3 that is stored has its vision tower; this one is made up and small.
MINIMAX_M3_VISION = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 2,
    "num_channels": 3,
    "patch_size": 14,
    "image_size": 448,
    "layer_norm_eps": 1e-5,
    "img_token_compression_config": {},
}
# Who wrote hf_quant_config.json, which some stored files lack: vLLM reads it as ModelOpt's only then.
MODELOPT = {"producer": {"name": "modelopt"}}
# Why a checkpoint is not asked about although its shapes are known.
NOT_ASKED = {
    "mistralai/Mistral-Small-4-119B-2603": "its params.json is not stored",
    "mistralai/Mistral-Large-4-1T-A52B": "its params.json is not stored",
    "stepfun-ai/Step-3.7-Flash": "its stored configuration is flat, where the class has a text model's",
    "stepfun-ai/Step-3.7-Flash-FP8": "its stored configuration is flat, where the class has a text model's",
    "zai-org/GLM-5.3-Flash": "defaults of its class lack what vLLM reads (mhc)",
}


@dataclass(frozen=True)
class Pair:
    """One checkpoint on one rig. plan: rigup's, which is "ok"."""

    checkpoint: CheckpointEntry
    rig: str
    plan: Plan

    @property
    def name(self) -> str:
        """As of `name_of`."""
        return name_of(self.checkpoint.repo, self.rig)

    @property
    def kind(self) -> str:
        """That of the model, as tables of kernels have it."""
        release = catalogue().engines_by_name[self.build.engine].version(self.build.version)
        assert release
        model = catalogue().models_by_name[self.checkpoint.model]
        return kind_of(str(release.architecture_of(model, self.checkpoint)), model.experts)

    @property
    def capability(self) -> str:
        """That of its cards."""
        return self.plan.rig.gpus[0].compute_capability

    @property
    def key(self) -> KernelKey:
        """As a plan looks its kernels up."""
        return KernelKey(self.kind, self.checkpoint.scheme, str(self.plan.kv_cache_type), self.capability)

    @property
    def build(self) -> Build:
        """The engine and its version."""
        assert self.plan.build
        return self.plan.build

    @property
    def question(self) -> dict[str, Any]:
        """What decides the answer, but for the repository's files."""
        plan = self.plan
        gpu = plan.rig.gpus[0]
        count, _, name = self.rig.partition("x ")
        return {
            "gpu": {
                "name": gpu.name,
                "capability": [int(part) for part in gpu.compute_capability.split(".")],
                "memory_mib": gpu.memory_mib or 119 * 1024,
                "multiprocessors": MULTIPROCESSORS[name],
                "nvlink": name.startswith(NVLINK),
                "unified": gpu.unified_memory,
            },
            "gpus": int(count),
            "environment": {key: plan.environment[key] for key in sorted(plan.environment) if key in DECIDING},
            "arguments": list(plan.command[BEFORE[self.build.engine] :]),
            "cache_mib": ROOM[self.build.engine](one.kv_cache_mib for one in plan.memory),
        }

    @property
    def digest(self) -> str:
        """Of the question and of the files, but for the size of the cache, which every change of the plan moves."""
        said = {**self.question, **files_of(self.checkpoint.repo)}
        del said["cache_mib"]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def case(self) -> dict[str, Any]:
        """A line for the judge."""
        return {"id": self.name, **self.question, **files_of(self.checkpoint.repo)}


def name_of(repo: str, rig: str) -> str:
    """ "org/name on 4x RTX 3090"."""
    return f"{repo} on {rig}"


@cache
def files_of(repo: str) -> dict[str, Any]:
    """ "config", and "files" beside it; {} of a checkpoint whose configuration nobody has stored."""
    if repo in NOT_ASKED:
        return {}
    if repo in BY_HAND:
        model, base = BY_HAND[repo]
        entry = {key: value for key, value in CONFIGS[base].items() if key != "source"}
        entry["config"] = {**CONFIGS[model]["config"], **entry["config"]}
    else:
        found = [(one, kind) for one in MODELS for name, kind in one.checkpoints.items() if name == repo]
        if not found:
            return {}
        published, kind = found[0]
        entry = configuration(published, kind)
        if published.context:
            longest = {"max_position_embeddings": published.context}
            entry["config"] = {**entry["config"], **longest}
            if "text_config" in entry["config"]:
                entry["config"]["text_config"] = {**entry["config"]["text_config"], **longest}
        if "weight_block_size" in ASSUMED.get(kind, ()):
            whole = kept_whole(entry, published.shapes)
            said = {**entry["config"]["quantization_config"], "modules_to_not_convert": whole}
            entry["config"] = {**entry["config"], "quantization_config": said}
    files = {"hf_quant_config.json": {**MODELOPT, **entry["hf_quant_config"]}} if "hf_quant_config" in entry else {}
    return {"config": _for_engines(entry["config"]), "files": files}


def _for_engines(config: dict[str, Any]) -> dict[str, Any]:
    """With the class that engines know, where a stored configuration has another."""
    kind = config["model_type"]
    if kind == "minimax_m3":
        text = {**config, "model_type": "minimax_m3_text"}
        config = {"text_config": text, "model_type": "minimax_m3_vl", "vision_config": MINIMAX_M3_VISION}
        return {**config, "architectures": ["MiniMaxM3SparseForConditionalGeneration"]}
    if kind == "minimax_m3_vl":
        return {**config, "vision_config": {**MINIMAX_M3_VISION, **config.get("vision_config", {})}}
    if kind == "hy_v3":  # vLLM reads what its class in transformers does not have
        config = {"first_k_dense_replace": 1, **config}
    return {**config, "architectures": [CLASSES.get(kind, config["architectures"][0])]}


def kept_whole(entry: dict[str, Any], shapes: str) -> list[str]:
    """The modules that the scheme leaves as they are, as makers list them."""
    tensors = stored(SHAPES[shapes], read_scheme(quantisation(entry), shapes), entry["config"]["model_type"])
    return sorted(
        tensor.name.removesuffix(".weight")
        for tensor in tensors
        if tensor.name.endswith(".weight") and tensor.dtype == "BF16" and len(tensor.shape) >= 2
    )


def pairs(engine: EngineName, version: str, names: Container[str] | None = None) -> Iterator[Pair]:
    """Every plan of a release that is "ok", of checkpoints whose configuration is known. names: None for all."""
    served = {model.name for model in catalogue().served}
    for checkpoint in catalogue().checkpoints:
        if checkpoint.model not in served or checkpoint.scheme == "gguf" or not files_of(checkpoint.repo):
            continue
        asked: dict[str, Any] = {"checkpoint": checkpoint.repo, "model": checkpoint.model, "engine": engine}
        asked |= {"version": version, "allow": [NO_ATTENTION]}
        for rig, host_memory_gib in RIGS.items():
            if names is not None and name_of(checkpoint.repo, rig) not in names:
                continue
            plan = decided(rig, asked, host_memory_gib)
            if plan.verdict == "ok" and plan.command:
                yield Pair(checkpoint, rig, plan)
