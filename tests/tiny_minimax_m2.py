"""A MiniMax M2 of two layers with random weights, as safetensors: what an engine loads like the real one, in no time.

It stands for a published checkpoint in tests. Made with the standard library alone, the same bytes on every machine.
Of what it differs in from the published ones: the sizes; experts are chosen by softmax, because vLLM's build for CPUs
knows no other way; and the output head knows printable ASCII only, so that an answer is always some text.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

REPO = "example/Tiny-MiniMax-M2"
MODEL = "Tiny-MiniMax-M2"
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 2, 128, 4, 2, 32
EXPERTS, PER_TOKEN, WIDTH, VOCAB, CONTEXT = 8, 2, 64, 512, 4096
PARAMETERS = 2 * VOCAB * HIDDEN + LAYERS * (
    2 * HIDDEN * HEAD_DIM * (HEADS + KV_HEADS) + EXPERTS * 3 * HIDDEN * WIDTH + EXPERTS * HIDDEN
)
SPECIAL = ("]~!b[", "[e~[", "]~b]", "<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>")
BEGIN, END = SPECIAL[0], SPECIAL[1]
TEMPLATE = (
    "{{ ']~!b[' }}{% for message in messages %}{{ ']~b]' ~ message.role ~ '\\n' ~ message.content ~ '[e~[\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ ']~b]ai\\n<think>\\n' }}{% endif %}"
)
CONFIG: dict[str, Any] = {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "model_type": "minimax_m2",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": LAYERS,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "rotary_dim": HEAD_DIM // 2,
    "rope_theta": 5000000,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "max_position_embeddings": CONTEXT,
    "vocab_size": VOCAB,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": PER_TOKEN,
    "scoring_func": "softmax",
    "use_routing_bias": True,
    "use_qk_norm": True,
    "qk_norm_type": "per_layer",
    "tie_word_embeddings": False,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
ATTENTION = (
    f'{{ kind = "full", layers = "0-{LAYERS - 1}", heads = {HEADS}, kv_heads = {KV_HEADS}, head_dim = {HEAD_DIM} }}'
)
MODEL_ENTRY = f"""\
[[model]]
name = "{MODEL}"
architectures = ["MiniMaxM2ForCausalLM"]
gguf_architecture = "minimax-m2"
layers = {LAYERS}
hidden = {HIDDEN}
attention = [{ATTENTION}]
vocab = {VOCAB}
context = {CONTEXT}
experts = {EXPERTS}
experts_per_token = {PER_TOKEN}
expert_intermediate = {WIDTH}
parameters = {PARAMETERS}
active_parameters = {PARAMETERS}
parsers.vllm = {{ tool = ["minimax_m2"], reasoning = ["minimax_m2"] }}
parsers.sglang = {{ tool = ["minimax-m2"], reasoning = ["minimax"] }}
sources = {{ parameters = "tests/tiny_minimax_m2.py, which makes it" }}
"""
CHECKPOINT_ENTRY = f"""\
[[checkpoint]]
repo = "{REPO}"
model = "{MODEL}"
quant = "BF16"
scheme = "bf16"
scope = "linear"
bytes = {2 * PARAMETERS}
minimum_versions = {{ vllm = "0.12.0", sglang = "0.5.9" }}
sources = {{ bytes = "tests/tiny_minimax_m2.py, which makes it" }}
"""


def describe(root: Path) -> None:
    """Adds the model and its checkpoint to a fleet's own catalogue."""
    for folder, text in (("models", MODEL_ENTRY), ("checkpoints", CHECKPOINT_ENTRY)):
        path = root / "catalogue" / folder / "tiny_minimax_m2.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write(folder: Path) -> None:
    """Makes the checkpoint's files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 256, "eos_token_id": 257}))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "model_max_length": CONTEXT}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "model.safetensors").write_bytes(_safetensors(_tensors()))


def byte_letters() -> list[str]:
    """The letter that byte-level BPE writes for each byte, in the order of the token numbers."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    others = [byte for byte in range(256) if byte not in letters]
    letters |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def _tokenizer() -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": 256 + number, "content": text, "special": "think" not in text and "tool" not in text, **flags}
        for number, text in enumerate(SPECIAL)
    ]
    vocabulary = {letter: number for number, letter in enumerate(byte_letters())}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


def _tensors() -> dict[str, tuple[tuple[int, ...], bytes]]:
    source = random.Random("tiny MiniMax M2")

    def noise(*shape: int) -> tuple[tuple[int, ...], bytes]:
        count = 1
        for size in shape:
            count *= size
        return shape, b"".join(_bf16(source.uniform(-0.1, 0.1)) for _ in range(count))

    def ones(size: int) -> tuple[tuple[int, ...], bytes]:
        return (size,), _bf16(1.0) * size

    tensors = {"model.embed_tokens.weight": noise(VOCAB, HIDDEN), "model.norm.weight": ones(HIDDEN)}
    rows = [noise(HIDDEN)[1] if 32 < token < 127 else bytes(2 * HIDDEN) for token in range(VOCAB)]
    tensors["lm_head.weight"] = ((VOCAB, HIDDEN), b"".join(rows))
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        tensors |= {
            f"{name}.input_layernorm.weight": ones(HIDDEN),
            f"{name}.post_attention_layernorm.weight": ones(HIDDEN),
            f"{name}.self_attn.q_proj.weight": noise(queries, HIDDEN),
            f"{name}.self_attn.k_proj.weight": noise(keys, HIDDEN),
            f"{name}.self_attn.v_proj.weight": noise(keys, HIDDEN),
            f"{name}.self_attn.o_proj.weight": noise(HIDDEN, queries),
            f"{name}.self_attn.q_norm.weight": ones(queries),
            f"{name}.self_attn.k_norm.weight": ones(keys),
            f"{name}.block_sparse_moe.gate.weight": noise(EXPERTS, HIDDEN),
            f"{name}.block_sparse_moe.e_score_correction_bias": ((EXPERTS,), bytes(2 * EXPERTS)),
        }
        for expert in range(EXPERTS):
            part = f"{name}.block_sparse_moe.experts.{expert}"
            tensors[f"{part}.w1.weight"] = noise(WIDTH, HIDDEN)
            tensors[f"{part}.w2.weight"] = noise(HIDDEN, WIDTH)
            tensors[f"{part}.w3.weight"] = noise(WIDTH, HIDDEN)
    return tensors


def _bf16(value: float) -> bytes:
    return struct.pack("<f", value)[2:]


def _safetensors(tensors: dict[str, tuple[tuple[int, ...], bytes]]) -> bytes:
    """The format: the header's length, a header that says where each tensor lies, and the tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values())
