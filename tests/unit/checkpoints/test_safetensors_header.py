"""Headers of safetensors files: what is read of a true one, and what is said of one that cannot be right."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.checkpoints.byte_source import ByteSource, local_file
from rigup.checkpoints.safetensors_header import read_safetensors_header
from rigup.checkpoints.tensor import Tensor
from rigup.errors import InputError
from rigup.lab.hub.sparse_files import safetensors_header, write_checkpoint, write_safetensors
from tests.hostile import bounded, mangled, read_safely

TENSORS = (
    Tensor("model.embed_tokens.weight", "BF16", (1000, 64), 128_000),
    Tensor("model.layers.0.mlp.down_proj.weight", "F8_E4M3", (64, 256), 16_384),
    Tensor("model.layers.0.mlp.down_proj.weight_scale_inv", "F32", (1, 2), 8),
    Tensor("model.layers.0.mlp.experts.down_proj_blocks", "F4", (4, 64), 128),
    Tensor("model.norm.weight", "BF16", (64,), 128),
    Tensor("model.scale", "F32", (), 4),
)


DAMAGED = "choose another revision: this one is damaged"


def source_of(content: bytes, size: int | None = None) -> ByteSource:
    """A file of these bytes, and of as many more as `size` says."""
    whole = len(content) if size is None else size

    def fetch(start: int, count: int) -> bytes:
        return content[start : start + count].ljust(count, b"\0")

    return ByteSource("org/model: x.safetensors", whole, DAMAGED, fetch)


def with_json(entries: Any, room: int = 0, length: int | None = None) -> ByteSource:
    content = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    head = struct.pack("<Q", len(content) if length is None else length) + content
    return source_of(head, len(head) + room)


def entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def test_every_tensor_is_read_from_a_sparse_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", TENSORS)
    assert read_safetensors_header(local_file(tmp_path / "model.safetensors")) == TENSORS


def test_a_terabyte_takes_little_disk(tmp_path: Path) -> None:
    big = [Tensor(f"layers.{n}.weight", "BF16", (50_000, 100_000), 10_000_000_000) for n in range(100)]
    write_checkpoint(tmp_path, big, shard_bytes=40_000_000_000)
    names = set(json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"].values())
    assert len(names) == 25
    assert sum((tmp_path / name).stat().st_size for name in names) > 10**12
    assert sum((tmp_path / name).stat().st_blocks for name in names) * 512 < 2**20
    read = [tensor for name in sorted(names) for tensor in read_safetensors_header(local_file(tmp_path / name))]
    assert read == big


def test_no_more_than_the_header_is_read(tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []
    head = safetensors_header(TENSORS)

    def fetch(start: int, count: int) -> bytes:
        asked.append((start, count))
        return head[start : start + count].ljust(count, b"\0")

    size = len(head) + sum(tensor.bytes for tensor in TENSORS)
    assert read_safetensors_header(ByteSource("x", size, "", fetch)) == TENSORS
    assert asked == [(0, 2**17)]


WRONG = {
    "nothing": (source_of(b""), "0 bytes are too few for a safetensors file"),
    "truncated": (with_json({}, length=5000), "the header is truncated: 2 of 5,000 bytes"),
    "absurd length": (
        source_of(struct.pack("<Q", 2**63), 2**40),
        "the header claims 9223372.04 TB, more than the limit of 33.6 MB",
    ),
    "2 GB of JSON": (
        source_of(struct.pack("<Q", 2**31), 2**40),
        "the header claims 2.1 GB, more than the limit of 33.6 MB",
    ),
    "not JSON": (
        with_json(b"{'a'}"),
        "the header is not JSON as safetensors has it: Expecting property name enclosed in double quotes: line 1 "
        "column 2 (char 1)",
    ),
    "a list": (with_json([]), "the header is not a table of tensors"),
    "overlapping": (with_json({"a": entry(0, 8), "b": entry(4, 12)}, 12), "b overlaps the tensor before it"),
    "beyond the end": (
        with_json({"a": entry(0, 8)}, 7),
        "a ends at byte 8, but the file has 7 bytes of tensors",
    ),
    "a gap": (with_json({"a": entry(0, 4), "b": entry(8, 12)}, 12), "4 bytes before b belong to no tensor"),
    "too long": (with_json({"a": entry(0, 4)}, 12), "8 bytes at the end belong to no tensor"),
    "unknown dtype": (with_json({"a": entry(0, 4, "F3")}, 4), "a: unknown dtype 'F3'"),
    "another size": (with_json({"a": entry(0, 4, "F32", [2])}, 4), "a: 4 bytes are not [2] of F32"),
    "negative shape": (with_json({"a": entry(0, 4, "U8", [-4])}, 4), "a: not a shape: [-4]"),
    "truth for a number": (
        with_json({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, 1),
        "a: not a shape: [True]",
    ),
    "turned offsets": (with_json({"a": entry(4, 0, "U8", [4])}, 4), "a: not a pair of offsets: [4, 0]"),
    "no fields": (with_json({"a": 7}), "a: unknown dtype None"),
    "a name that drives terminals": (
        with_json({"\x1b[2J": entry(0, 1)}, 1),
        "'\\x1b[2J' is not a tensor's name",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_right_is_one_message(kind: str) -> None:
    source, message = WRONG[kind]
    with bounded(), pytest.raises(InputError) as error:
        read_safetensors_header(source)
    assert error.value.message == f"org/model: x.safetensors: {message}"
    assert error.value.hint == DAMAGED


@pytest.mark.parametrize(
    "content", [b"[" * 2**20, b"{" + b'"a":[],' * 2**21, b'{"a":' + b"9" * 100_000 + b"}", b'{"a":NaN}', b"\xff" * 99]
)
def test_json_that_costs_much_ends_in_an_error(content: bytes) -> None:
    assert read_safely(lambda: read_safetensors_header(with_json(content)), "org/model: x.safetensors: ") is None


@given(mangled({tensor.name: {"dtype": tensor.dtype, "shape": list(tensor.shape)} for tensor in TENSORS}), st.data())
def test_any_header_gives_tensors_or_one_error(entries: Any, data: st.DataObject) -> None:
    if isinstance(entries, dict):
        for value in entries.values():
            if isinstance(value, dict):
                offsets = st.lists(st.integers(0, 200_000), min_size=2, max_size=2)
                value["data_offsets"] = data.draw(offsets | st.sampled_from([[0, 128_000], [128_000, 144_384]]))
    content = json.dumps(entries).encode(errors="surrogatepass")
    room = data.draw(st.sampled_from([0, 128_000, 144_384]))
    found = read_safely(lambda: read_safetensors_header(with_json(content, room)), "org/model: x.safetensors: ")
    if found is not None:
        assert all(isinstance(tensor, Tensor) for tensor in found)
        assert sum(tensor.bytes for tensor in found) == room


@given(st.data())
def test_a_true_header_with_wrong_bytes_gives_tensors_or_one_error(data: st.DataObject) -> None:
    content = bytearray(safetensors_header(TENSORS))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    kept = bytes(content[: data.draw(st.integers(0, len(content)))])
    read_safely(lambda: read_safetensors_header(source_of(kept)), "org/model: x.safetensors: ")
