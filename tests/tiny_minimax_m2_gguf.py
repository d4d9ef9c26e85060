"""The same kind of tiny MiniMax M2 as GGUF, with experts chosen by sigmoid as in the real one, and its real template.

It stands for a published checkpoint in tests. Made with the standard library alone, the same bytes on every machine.
The format: ggml-org/ggml docs/gguf.md, version 3; names and keys as llama.cpp b11434 reads them for minimax-m2.
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from pathlib import Path

from rigup.lab.hub.content import commit_id
from rigup.project.inventory import toolkit_root
from tests.lab.wheels import sha256
from tests.tiny_minimax_m2 import (
    CONTEXT,
    EXPERTS,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    MODEL,
    MODEL_ENTRY,
    PER_TOKEN,
    SPECIAL,
    WIDTH,
    byte_letters,
)

REPO = "example/Tiny-MiniMax-M2-GGUF"
FILE = "Tiny-MiniMax-M2-F32.gguf"
SIGMOID = 2
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TOKENS = [*byte_letters(), "he", "ll", "hell", *SPECIAL]
MERGES = ["h e", "l l", "he ll"]
Value = bool | int | float | str | list[int] | list[str]
Tensor = tuple[tuple[int, ...], "array[float]"]


def provide(root: Path, served: Path, template: str) -> None:
    """Makes the checkpoint for a hub that serves `served`, and a fleet's lock with it and the toolkit's own pins."""
    folder = served / REPO
    size = write(folder, template)
    describe(root, size)
    digest = sha256(folder / FILE)
    (root / "rigup.lock").write_text(
        f"{(toolkit_root() / 'rigup.lock').read_text()}\n"
        f'[[checkpoints]]\nrepo = "{REPO}"\nquant = "F32"\nrevision = "{commit_id({FILE: digest})}"\n'
        f'[[checkpoints.files]]\npath = "{FILE}"\nsize = {size}\nsha256 = "{digest}"\n'
    )


def describe(root: Path, size: int) -> None:
    """Adds the model and its checkpoint of `size` bytes to a fleet's own catalogue."""
    checkpoint = (
        f'[[checkpoint]]\nrepo = "{REPO}"\nmodel = "{MODEL}"\nquant = "F32"\nscheme = "gguf"\nbytes = {size}\n'
        f'bytes_exact = true\nentry = "{FILE}"\nembedding_bits = 32\nhead_bits = 32\n'
        'minimum_versions = { "llama.cpp" = "b11434" }\nsources = { bytes = "tests/tiny_minimax_m2_gguf.py" }\n'
    )
    for folder, text in (("models", MODEL_ENTRY), ("checkpoints", checkpoint)):
        path = root / "catalogue" / folder / "tiny_minimax_m2.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write(folder: Path, template: str) -> int:
    """Makes the checkpoint's only file; returns its size. template: MiniMax M2's chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    keys, tensors = _keys(template), _tensors()
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    for key, value in keys.items():
        head += _text(key) + _typed(value)
    at, data = 0, b""
    for name, (shape, numbers) in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, at)
        raw = numbers.tobytes()
        data += raw + bytes(-len(raw) % ALIGNMENT)
        at = len(data)
    content = head + bytes(-len(head) % ALIGNMENT) + data
    (folder / FILE).write_bytes(content)
    return len(content)


def _keys(template: str) -> dict[str, Value]:
    types = [NORMAL] * (len(TOKENS) - len(SPECIAL)) + [CONTROL] * 3 + [USER_DEFINED] * (len(SPECIAL) - 3)
    own: dict[str, Value] = {
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": WIDTH,
        "expert_feed_forward_length": WIDTH,
        "block_count": LAYERS,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": HEAD_DIM // 2,
        "rope.freq_base": 5e6,
        "vocab_size": len(TOKENS),
        "expert_count": EXPERTS,
        "expert_used_count": PER_TOKEN,
        "expert_gating_func": SIGMOID,
    }
    first = len(TOKENS) - len(SPECIAL)
    return {
        "general.architecture": "minimax-m2",
        "general.name": MODEL,
        "general.file_type": 0,
        **{f"minimax-m2.{key}": value for key, value in own.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "minimax-m2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": first,
        "tokenizer.ggml.eos_token_id": first + 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": template,
    }


def _tensors() -> dict[str, Tensor]:
    source = random.Random("tiny MiniMax M2")

    def noise(*shape: int) -> Tensor:
        return shape, array("f", (source.uniform(-0.1, 0.1) for _ in range(math.prod(shape))))

    def ones(size: int) -> Tensor:
        return (size,), array("f", [1.0]) * size

    rows = array("f")
    for token in range(len(TOKENS)):
        # the output knows printable ASCII only, so that an answer is always some text
        rows += noise(HIDDEN)[1] if 32 < token < 127 else array("f", bytes(4 * HIDDEN))
    tensors: dict[str, Tensor] = {
        "token_embd.weight": noise(len(TOKENS), HIDDEN),
        "output_norm.weight": ones(HIDDEN),
        "output.weight": ((len(TOKENS), HIDDEN), rows),
    }
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        tensors |= {
            f"{block}.attn_norm.weight": ones(HIDDEN),
            f"{block}.ffn_norm.weight": ones(HIDDEN),
            f"{block}.attn_q.weight": noise(queries, HIDDEN),
            f"{block}.attn_k.weight": noise(keys, HIDDEN),
            f"{block}.attn_v.weight": noise(keys, HIDDEN),
            f"{block}.attn_output.weight": noise(HIDDEN, queries),
            f"{block}.attn_q_norm.weight": ones(queries),
            f"{block}.attn_k_norm.weight": ones(keys),
            f"{block}.ffn_gate_inp.weight": noise(EXPERTS, HIDDEN),
            f"{block}.ffn_gate_exps.weight": noise(EXPERTS, WIDTH, HIDDEN),
            f"{block}.ffn_up_exps.weight": noise(EXPERTS, WIDTH, HIDDEN),
            f"{block}.ffn_down_exps.weight": noise(EXPERTS, HIDDEN, WIDTH),
            f"{block}.exp_probs_b.bias": ((EXPERTS,), array("f", bytes(4 * EXPERTS))),
        }
    return tensors


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _typed(value: Value) -> bytes:
    """A value with its type before it; whole numbers are unsigned, but for those in lists."""
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    kind = STRING if isinstance(value[0], str) else INT32
    items = b"".join(_text(item) if isinstance(item, str) else struct.pack("<i", item) for item in value)
    return struct.pack("<IIQ", ARRAY, kind, len(value)) + items
