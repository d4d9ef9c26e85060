"""Checkpoint files with true headers and no weights: holes of a sparse file stand for the tensors.

A repository of a terabyte takes some megabytes of disk, and every reader of headers finds in it what the real one has.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from rigup.checkpoints.tensor import Tensor
from rigup.quantisation.ggml_types import GGML_TYPES

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 5, 6, 7, 8, 9, 10
Value = bool | int | float | str | list[str] | list[int]


def safetensors_header(tensors: Iterable[Tensor]) -> bytes:
    """The length and the JSON of a safetensors file with these tensors, one after the other."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.bytes
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    content = json.dumps(entries, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    return struct.pack("<Q", len(content)) + content


def write_safetensors(path: Path, tensors: Iterable[Tensor]) -> None:
    """One file, sparse behind its header."""
    tensors = tuple(tensors)
    _write_sparse(path, safetensors_header(tensors), sum(tensor.bytes for tensor in tensors))


def write_checkpoint(folder: Path, tensors: Iterable[Tensor], shard_bytes: int = 5_000_000_000) -> None:
    """Shards of about that size and their index, as transformers names them; one file where they are all in one."""
    shards: list[list[Tensor]] = [[]]
    room = shard_bytes
    for tensor in tensors:
        if tensor.bytes > room and shards[-1]:
            shards.append([])
            room = shard_bytes
        shards[-1].append(tensor)
        room -= tensor.bytes
    folder.mkdir(parents=True, exist_ok=True)
    if len(shards) == 1:
        write_safetensors(folder / "model.safetensors", shards[0])
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(folder / name, shard)
        places |= dict.fromkeys((tensor.name for tensor in shard), name)
    total = sum(tensor.bytes for shard in shards for tensor in shard)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def gguf_header(metadata: Mapping[str, Value], tensors: Iterable[Tensor]) -> bytes:
    """Everything of a GGUF file, version 3, before the bytes of its tensors."""
    tensors = tuple(tensors)
    kinds = {kind.name: number for number, kind in GGML_TYPES.items()}
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    parts += [_text(key) + _value(value) for key, value in metadata.items()]
    end = 0
    for tensor in tensors:
        shape = tuple(reversed(tensor.shape))
        parts.append(_text(tensor.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        parts.append(struct.pack("<IQ", kinds[tensor.dtype], end))
        end += tensor.bytes + -tensor.bytes % ALIGNMENT
    content = b"".join(parts)
    return content + bytes(-len(content) % ALIGNMENT)


def write_gguf(path: Path, metadata: Mapping[str, Value], tensors: Iterable[Tensor]) -> None:
    """One file, sparse behind its header."""
    tensors = tuple(tensors)
    size = sum(tensor.bytes + -tensor.bytes % ALIGNMENT for tensor in tensors)
    _write_sparse(path, gguf_header(metadata, tensors), size)


def _write_sparse(path: Path, head: bytes, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _value(value: Value) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value) if 0 <= value < 2**32 else struct.pack("<IQ", UINT64, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    texts = bool(value) and isinstance(value[0], str)
    head = struct.pack("<IIQ", ARRAY, STRING if texts else INT32, len(value))
    return head + b"".join(_text(item) if isinstance(item, str) else struct.pack("<i", item) for item in value)
