"""A MiniMax M2 of two layers in block FP8 and BF16, as safetensors: sizes that GPUs take, and weights of zeros.

They stand for published checkpoints where engines start on simulated GPUs, which compute nothing. Made with the
standard library alone.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

from tests import tiny_minimax_m2 as tiny

REPOS = {"FP8": "example/Tiny-MiniMax-M2-Wide-FP8", "BF16": "example/Tiny-MiniMax-M2-Wide"}
MODEL = "Tiny-MiniMax-M2-Wide"
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, BLOCK = 2, 512, 8, 4, 128, 128
EXPERTS, PER_TOKEN, WIDTH, VOCAB, CONTEXT = 16, 4, 256, 512, 8192
PLAIN = {
    **tiny.CONFIG,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "rotary_dim": HEAD_DIM // 2,
    "max_position_embeddings": CONTEXT,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": PER_TOKEN,
    "scoring_func": "sigmoid",
}
BLOCKS = {
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "float8_e4m3fn",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
    },
}
PARAMETERS = 2 * VOCAB * HIDDEN + LAYERS * (
    2 * HIDDEN * HEAD_DIM * (HEADS + KV_HEADS) + EXPERTS * 3 * HIDDEN * WIDTH + EXPERTS * HIDDEN
)
_SIZES = {
    tiny.ATTENTION: f'{{ kind = "full", layers = "0-{LAYERS - 1}", heads = {HEADS}, kv_heads = {KV_HEADS}, '
    f"head_dim = {HEAD_DIM} }}",
    f'"{tiny.MODEL}"': f'"{MODEL}"',
    f"hidden = {tiny.HIDDEN}\n": f"hidden = {HIDDEN}\n",
    f"context = {tiny.CONTEXT}\n": f"context = {CONTEXT}\n",
    f"experts = {tiny.EXPERTS}\n": f"experts = {EXPERTS}\n",
    f"experts_per_token = {tiny.PER_TOKEN}\n": f"experts_per_token = {PER_TOKEN}\n",
    f"expert_intermediate = {tiny.WIDTH}\n": f"expert_intermediate = {WIDTH}\n",
    f"parameters = {tiny.PARAMETERS}\n": f"parameters = {PARAMETERS}\n",
}


def describe(root: Path) -> None:
    """Adds the model and its checkpoints to a fleet's own catalogue."""
    model = tiny.MODEL_ENTRY
    for old, new in _SIZES.items():
        model = model.replace(old, new)
    checkpoints = ""
    for quant, scheme in (("FP8", f'"fp8_block{BLOCK}"\nscope = "linear"'), ("BF16", '"bf16"')):
        size = sum(len(data) for _, _, data in _tensors(quant))
        checkpoints += (
            f'[[checkpoint]]\nrepo = "{REPOS[quant]}"\nmodel = "{MODEL}"\nquant = "{quant}"\nscheme = {scheme}\n'
            f'bytes = {size}\nsources = {{ bytes = "tests/tiny_minimax_m2_for_gpus.py, which makes it" }}\n'
        )
    for folder, text in (("models", model), ("checkpoints", checkpoints)):
        path = root / "catalogue" / folder / "tiny_minimax_m2_for_gpus.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write(hub: Path, quant: str) -> None:
    """Makes the files of a checkpoint in a hub's folder."""
    folder = hub / REPOS[quant]
    tiny.write(folder)
    config = PLAIN | BLOCKS if quant == "FP8" else PLAIN
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, content = {}, b""
    for name, (kind, shape), data in _tensors(quant):
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(content), len(content) + len(data)]}
        content += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)


def _tensors(quant: str) -> list[tuple[str, tuple[str, tuple[int, ...]], bytes]]:
    found: list[tuple[str, tuple[str, tuple[int, ...]], bytes]] = []

    def plain(name: str, *shape: int) -> None:
        found.append((name, ("BF16", shape), bytes(2 * _product(shape))))

    def block(name: str, rows: int, columns: int) -> None:
        if quant == "BF16":
            plain(f"{name}.weight", rows, columns)
            return
        scales = (rows // BLOCK, columns // BLOCK)
        found.append((f"{name}.weight", ("F8_E4M3", (rows, columns)), bytes(rows * columns)))
        found.append((f"{name}.weight_scale_inv", ("F32", scales), struct.pack("<f", 1) * _product(scales)))

    plain("model.embed_tokens.weight", VOCAB, HIDDEN)
    plain("model.norm.weight", HIDDEN)
    plain("lm_head.weight", VOCAB, HIDDEN)
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        plain(f"{name}.input_layernorm.weight", HIDDEN)
        plain(f"{name}.post_attention_layernorm.weight", HIDDEN)
        plain(f"{name}.self_attn.q_norm.weight", queries)
        plain(f"{name}.self_attn.k_norm.weight", keys)
        block(f"{name}.self_attn.q_proj", queries, HIDDEN)
        block(f"{name}.self_attn.k_proj", keys, HIDDEN)
        block(f"{name}.self_attn.v_proj", keys, HIDDEN)
        block(f"{name}.self_attn.o_proj", HIDDEN, queries)
        plain(f"{name}.block_sparse_moe.gate.weight", EXPERTS, HIDDEN)
        plain(f"{name}.block_sparse_moe.e_score_correction_bias", EXPERTS)
        for expert in range(EXPERTS):
            part = f"{name}.block_sparse_moe.experts.{expert}"
            block(f"{part}.w1", WIDTH, HIDDEN)
            block(f"{part}.w2", HIDDEN, WIDTH)
            block(f"{part}.w3", WIDTH, HIDDEN)
    return found


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
