"""Tiny repositories in Mistral's own format, with true names and holes for weights.

Keys of params.json and names of tensors as mistralai/Mistral-Small-4-119B-2603, Mistral-Large-3-675B-Instruct-2512 and
Ministral-3 have them: vLLM 0.33.0 transformers_utils/configs/mistral.py, models/mistral_large_3.py and mistral.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rigup.checkpoints.tensor import Tensor
from rigup.lab.hub.sparse_files import write_safetensors

VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 14, "image_size": 28}
SHAPE = {"dim": 64, "n_layers": 3, "n_heads": 4, "head_dim": 16, "norm_eps": 1e-6, "vocab_size": 100}
DENSE: dict[str, Any] = {
    **SHAPE,
    "n_kv_heads": 2,
    "hidden_dim": 96,
    "rope_theta": 1e6,
    "max_position_embeddings": 4096,
    "tied_embeddings": True,
    "kv_lora_rank": None,
    "qk_nope_head_dim": None,
}
LATENT: dict[str, Any] = {
    **SHAPE,
    "n_kv_heads": 4,
    "hidden_dim": 96,
    "rope_theta": 1e4,
    "max_position_embeddings": 8192,
    "tied_embeddings": False,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "llama_4_scaling": {"original_max_position_embeddings": 1024, "beta": 0.1},
    "yarn": {"factor": 8, "original_max_position_embeddings": 1024, "beta": 32, "alpha": 1, "apply_scale": False},
    "moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "expert_hidden_dim": 16,
        "first_k_dense_replace": 1,
        "num_shared_experts": 1,
        "route_every_n": 1,
        "routed_scale": 1.0,
        "num_expert_groups": 1,
        "num_expert_groups_per_tok": 1,
    },
    "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"},
}
SEEING = {**LATENT, "vision_encoder": VISION}


def tensors(params: dict[str, Any]) -> Iterator[Tensor]:
    """Every tensor that a checkpoint with these params.json has; matrices of layers in FP8 where they say so."""
    dim, vocab = params["dim"], params["vocab_size"]
    yield _wide("tok_embeddings.weight", (vocab, dim))
    for layer in range(params["n_layers"]):
        yield _wide(f"layers.{layer}.attention_norm.weight", (dim,))
        yield _wide(f"layers.{layer}.ffn_norm.weight", (dim,))
        if layer >= params.get("moe", {}).get("first_k_dense_replace", params["n_layers"]):
            yield _wide(f"layers.{layer}.gate.weight", (params["moe"]["num_experts"], dim))
        for name, shape in _matrices(params, layer):
            module = f"layers.{layer}.{name}"
            if "quantization" not in params:
                yield _wide(f"{module}.weight", shape)
                continue
            yield Tensor(f"{module}.weight", "F8_E4M3", shape, shape[0] * shape[1])
            yield Tensor(f"{module}.qscale_weight", "F32", (), 4)
            yield Tensor(f"{module}.qscale_act", "F32", (), 4)
    yield _wide("norm.weight", (dim,))
    if not params["tied_embeddings"]:
        yield _wide("output.weight", (vocab, dim))
    if "vision_encoder" in params:
        yield _wide("vision_encoder.transformer.layers.0.attention.wq.weight", (32, 32))
        yield _wide("vision_language_adapter.w_in.weight", (dim, 32))
        yield _wide("pre_mm_projector_norm.weight", (32,))


def write(folder: Path, params: dict[str, Any], **files: bytes) -> Path:
    """The repository: params.json, a tokenizer, one file of weights. files: further ones, __ for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(params))
    (folder / "tekken.json").write_text("{}")
    write_safetensors(folder / "consolidated.safetensors", tensors(params))
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def _matrices(params: dict[str, Any], layer: int) -> Iterator[tuple[str, tuple[int, int]]]:
    dim, heads, width = params["dim"], params["n_heads"], params["head_dim"]
    if params["kv_lora_rank"]:
        rank, rope, query = params["kv_lora_rank"], params["qk_rope_head_dim"], params["q_lora_rank"]
        yield "attention.wq_a", (query, dim)
        yield "attention.wq_b", (heads * width, query)
        yield "attention.wkv_a_with_mqa", (rank + rope, dim)
        yield "attention.wkv_b", (heads * (params["qk_nope_head_dim"] + params["v_head_dim"]), rank)
    else:
        yield "attention.wq", (heads * width, dim)
        yield "attention.wk", (params["n_kv_heads"] * width, dim)
        yield "attention.wv", (params["n_kv_heads"] * width, dim)
    yield "attention.wo", (dim, heads * width)
    experts = params.get("moe")
    if experts is None or layer < experts["first_k_dense_replace"]:
        yield from _feed_forward("feed_forward", dim, params["hidden_dim"])
        return
    for expert in range(experts["num_experts"]):
        yield from _feed_forward(f"experts.{expert}", dim, experts["expert_hidden_dim"])
    yield from _feed_forward("shared_experts", dim, experts["expert_hidden_dim"])


def _feed_forward(name: str, dim: int, width: int) -> Iterator[tuple[str, tuple[int, int]]]:
    yield f"{name}.w1", (width, dim)
    yield f"{name}.w2", (dim, width)
    yield f"{name}.w3", (width, dim)


def _wide(name: str, shape: tuple[int, ...]) -> Tensor:
    size = 2
    for side in shape:
        size *= side
    return Tensor(name, "BF16", shape, size)
