"""Makes a tiny checkpoint of each class of attention, with random weights: as safetensors, and as GGUF.

It stands for published checkpoints in tests. Names, types and shapes are those that the makers' configuration classes
and llama.cpp's converter give (classes.json, written by collect.py); made here, the same bytes on every machine. The
formats: huggingface/safetensors README.md; ggml-org/ggml docs/gguf.md, version 3.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rigup.layer_range import layer_numbers
from rigup.quantisation.ggml_types import GGML_TYPES
from tests.tiny_minimax_m2 import byte_letters

CLASSES: dict[str, Any] = json.loads((Path(__file__).parent / "classes.json").read_text())
BEGIN, END = "<|begin|>", "<|end|>"
VOCAB = 512
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
# Of GGUF: the type of a value, how struct packs it, and what a tensor's type has: its number, bytes, elements.
VALUES = {"UINT32": (4, "I"), "INT32": (5, "i"), "FLOAT32": (6, "f"), "BOOL": (7, "?"), "UINT64": (10, "Q")}
STRING, ARRAY = 8, 9
TENSORS = {known.name: (number, known.bytes, known.elements) for number, known in GGML_TYPES.items()}
NORMAL, CONTROL, UNUSED = 1, 3, 5
ALIGNMENT = 32
# The output knows printable ASCII only, so that an answer is always some text.
OUTPUT = ("lm_head.weight", "head.weight", "output.weight")
EMBEDDING = ("model.embed_tokens.weight", "embed.weight", "token_embd.weight")
Tensor = tuple[str, str, tuple[int, ...]]


def name_of(kind: str) -> str:
    """What the model of a class is called."""
    return f"Tiny-{kind.replace('_', '-')}"


def write_safetensors(folder: Path, kind: str) -> None:
    """The repository of a maker: configuration, tokenizer, template and one file of weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CLASSES[kind]["config"], indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 256, "eos_token_id": 257}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content = b""
    for name, dtype, shape in _unfolded(CLASSES[kind]["tensors"]):
        data = _data(name, dtype, shape, tied=CLASSES[kind]["config"]["tie_word_embeddings"])
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(content), len(content) + len(data)]}
        content += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)


def write_gguf(path: Path, kind: str) -> None:
    """The file that a converter makes of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    said = CLASSES[kind]["gguf"]
    tensors = list(_unfolded(said["tensors"]))
    tied = all(name not in OUTPUT for name, _, _ in tensors)
    data = b"".join(_padded(_data(name, dtype, shape, tied)) for name, dtype, shape in tensors)
    path.write_bytes(gguf_head(name_of(kind), said["metadata"], tensors, VOCAB) + data)


def gguf_head(name: str, metadata: dict[str, Any], tensors: list[Tensor], vocab: int) -> bytes:
    """What stands before the tensors' data, each of which begins at a multiple of ALIGNMENT.

    metadata: values after their types, as in classes.json; vocab: tokens that the file has.
    """
    keys = [_text(key) + _typed(types, value) for key, (types, value) in metadata.items()]
    keys += [_text("general.name") + _typed(["STRING"], name)]
    keys += [_text(f"tokenizer.{key}") + _typed(types, value) for key, (types, value) in _vocabulary(vocab).items()]
    head, offset = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(keys), 0
    for tensor, dtype, shape in tensors:
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += _text(tensor) + sizes + struct.pack("<IQ", TENSORS[dtype][0], offset)
        offset += bytes_of(dtype, shape)
    return _padded(head)


def bytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Of a tensor in a GGUF file, with what fills it up to a multiple of ALIGNMENT."""
    _, size, elements = TENSORS[dtype]
    return -(-math.prod(shape) // elements * size // ALIGNMENT) * ALIGNMENT


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def tokenizer() -> dict[str, Any]:
    """A token for each byte, and two that begin and end a text."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": 256 + number, "content": text, **flags} for number, text in enumerate((BEGIN, END))]
    vocabulary = {letter: number for number, letter in enumerate(byte_letters())}
    vocabulary |= {f"<unused{number}>": number for number in range(258, VOCAB)}
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


def _vocabulary(vocab: int) -> dict[str, tuple[list[str], Any]]:
    unused = [f"<unused{number}>" for number in range(258, vocab)]
    types = [NORMAL] * 256 + [CONTROL] * 2 + [UNUSED] * len(unused)
    return {
        "ggml.model": (["STRING"], "gpt2"),
        "ggml.pre": (["STRING"], "gpt-2"),
        "ggml.tokens": (["ARRAY", "STRING"], [*byte_letters(), BEGIN, END, *unused]),
        "ggml.token_type": (["ARRAY", "INT32"], types),
        "ggml.merges": (["ARRAY", "STRING"], ["h e"]),
        "ggml.bos_token_id": (["UINT32"], 256),
        "ggml.eos_token_id": (["UINT32"], 257),
        "ggml.add_bos_token": (["BOOL"], False),
        "chat_template": (["STRING"], TEMPLATE),
    }


def _unfolded(rows: list[list[Any]]) -> Iterator[Tensor]:
    """Each row for each of its layers."""
    for name, layers, dtype, shape in rows:
        for number in layer_numbers(layers) if layers else (0,):
            yield name.replace("{}", str(number)), dtype, tuple(shape)


def _data(name: str, dtype: str, shape: tuple[int, ...], tied: bool) -> bytes:
    """Small random numbers; ones where a norm scales, what decays decays, and tables name experts that there are."""
    source, count = random.Random(name), math.prod(shape)
    if dtype in ("I32", "I64"):  # a table of experts, two for each token
        return struct.pack("<ii" if dtype == "I32" else "<qq", 0, 1) * (count // 2)
    if dtype == "MXFP4":
        return b"".join(b"\x79" + source.randbytes(16) for _ in range(count // 32))
    if dtype in ("I8", "F8_E8M0"):
        return source.randbytes(count) if dtype == "I8" else b"\x79" * count
    if name.endswith("ssm_a"):
        return _numbers(dtype, -1.0) * count
    if len(shape) == 1 and "norm" in name:
        return _numbers(dtype, 1.0) * count
    if name in OUTPUT or (tied and name in EMBEDDING):
        row = count // shape[0]
        return b"".join(
            _noise(source, dtype, row) if 32 < token < 127 else bytes(len(_numbers(dtype, 0.0)) * row)
            for token in range(shape[0])
        )
    return _noise(source, dtype, count)


def _numbers(dtype: str, value: float) -> bytes:
    packed = struct.pack("<e" if dtype == "F16" else "<f", value)
    return packed[2:] if dtype == "BF16" else packed


# By the random byte in its place: the last byte of a number whose absolute value is 0.03 to 0.06.
_SIGNED = {"F16": (0x28, 0x83), "BF16": (0x3D, 0x80), "F32": (0x3D, 0x80)}


def _noise(source: random.Random, dtype: str, count: int) -> bytes:
    base, free = _SIGNED[dtype]
    last = bytes(base | (byte & free) for byte in range(256))
    size = len(_numbers(dtype, 0.0))
    data = bytearray(source.randbytes(size * count))
    data[size - 1 :: size] = data[size - 1 :: size].translate(last)
    if dtype != "F16":  # the exponent's last bit is in the byte before
        data[size - 2 :: size] = data[size - 2 :: size].translate(bytes(byte & 0x7F for byte in range(256)))
    return bytes(data)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _typed(types: list[str], value: Any) -> bytes:
    """A value with its type before it."""
    if types[0] == "STRING":
        return struct.pack("<I", STRING) + _text(value)
    if types[0] != "ARRAY":
        number, letter = VALUES[types[0]]
        return struct.pack(f"<I{letter}", number, value)
    if types[1] == "STRING":
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_text, value))
    number, letter = VALUES[types[1]]
    return struct.pack("<IIQ", ARRAY, number, len(value)) + struct.pack(f"<{len(value)}{letter}", *value)
