"""Headers of GGUF files: what is read of a true one, and what is said of one that cannot be right."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.checkpoints import gguf_header
from rigup.checkpoints.byte_source import local_file
from rigup.checkpoints.gguf_header import GgufHeader, read_gguf_header
from rigup.checkpoints.tensor import Tensor
from rigup.errors import InputError
from rigup.lab.hub.sparse_files import gguf_header as header_bytes
from rigup.lab.hub.sparse_files import write_gguf
from tests.hostile import bounded, read_safely
from tests.unit.checkpoints.test_safetensors_header import source_of

METADATA: dict[str, Any] = {
    "general.architecture": "qwen3moe",
    "qwen3moe.block_count": 2,
    "qwen3moe.rope.freq_base": 1000000.0,
    "qwen3moe.attention.head_count_kv": [4, 0],
    "tokenizer.ggml.tokens": ["a", "b", "c"],
    "tokenizer.ggml.add_bos_token": False,
}
TENSORS = (
    Tensor("token_embd.weight", "Q6_K", (1000, 256), 210_000),
    Tensor("blk.0.ffn_down_exps.weight", "MXFP4", (4, 256, 64), 4 * 256 * 34),
    Tensor("output_norm.weight", "F32", (255,), 1020),
)
NAME = "org/model: x.safetensors: "


def test_metadata_and_tensors_are_read_from_a_sparse_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", METADATA, TENSORS)
    found = read_gguf_header(local_file(tmp_path / "x.gguf"))
    assert found.tensors == TENSORS
    assert found.lengths == {"qwen3moe.attention.head_count_kv": 2, "tokenizer.ggml.tokens": 3}
    assert found.metadata == {
        "general.architecture": "qwen3moe",
        "qwen3moe.block_count": 2,
        "qwen3moe.rope.freq_base": 1000000.0,
        "qwen3moe.attention.head_count_kv": (4, 0),
        "tokenizer.ggml.add_bos_token": False,
    }


def test_a_vocabulary_of_many_windows_is_passed_over(tmp_path: Path) -> None:
    words = [f"word{number}" * 8 for number in range(60_000)]
    write_gguf(tmp_path / "x.gguf", {"tokenizer.ggml.tokens": words, **METADATA} | {"z": 7}, TENSORS)
    with bounded(5, 64):
        found = read_gguf_header(local_file(tmp_path / "x.gguf"))
    assert found.tensors == TENSORS and found.metadata["z"] == 7


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()


def head(keys: int = 0, tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def tensor(name: str, shape: tuple[int, ...], kind: int, begin: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, begin)


ROOM = 2**20
WRONG: dict[str, tuple[bytes, str]] = {
    "another file": (b"PK\3\4", "not a GGUF file"),
    "version 1": (head(version=1), "GGUF version 1 is not supported"),
    "big-endian": (head(version=3 << 24), "GGUF version 50331648 is not supported"),
    "many tensors": (head(tensors=2**40), "1,099,511,627,776 tensors are more than the limit of 200,000"),
    "many keys": (head(keys=2**63), "9,223,372,036,854,775,808 keys are more than the limit of 4,096"),
    "a long key": (head(1) + struct.pack("<Q", 2**62), "a key has a name of 4,611,686,018,427,387,904 bytes"),
    "a key that is not text": (head(1) + struct.pack("<Q", 2) + b"\xff\xff", "a key has a name that is not text"),
    "a long text": (
        head(1) + text("k") + struct.pack("<IQ", 8, 2**50),
        "k: a text of 1,125,899,906,842,624 bytes is longer than 2,097,152",
    ),
    "an unknown value": (head(1) + text("k") + struct.pack("<I", 77), "k: unknown kind of value 77"),
    "a long array": (
        head(1) + text("k") + struct.pack("<IIQ", 9, 4, 2**61),
        "k: 2,305,843,009,213,693,952 values are too many",
    ),
    "many arrays in an array": (
        head(1) + text("k") + struct.pack("<IIQ", 9, 9, 3_900_000),
        "k: 3,900,000 values are too many",
    ),
    "an array beyond the end": (
        head(1) + text("k") + struct.pack("<IIQ", 9, 8, 3_000_000),
        "k: 3,000,000 values do not fit into the file",
    ),
    "nested arrays": (
        head(1) + text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50,
        "k: nested deeper than 2 levels",
    ),
    "a key twice": (head(2) + (text("k") + struct.pack("<II", 4, 1)) * 2, "k is given twice"),
    "no power of two": (
        head(1) + text("general.alignment") + struct.pack("<II", 4, 48),
        "general.alignment: 48 is not a power of two",
    ),
    "many dimensions": (
        head(tensors=1) + text("t") + struct.pack("<I", 2**31),
        "t: 2147483648 dimensions are more than 4",
    ),
    "an unknown type": (head(tensors=1) + tensor("t", (32,), 999, 0), "t: unknown type 999"),
    "rows that are not blocks": (head(tensors=1) + tensor("t", (33,), 8, 0), "t: [33] is not a shape of Q8_0"),
    "an absurd shape": (
        head(tensors=1) + tensor("t", (2**40, 2**40), 0, 0),
        "t: [1099511627776, 1099511627776] is not a shape of F32",
    ),
    "an absurd offset": (
        head(tensors=1) + tensor("t", (32,), 8, 2**50),
        "t ends at byte 1,125,899,906,842,658, but the file has 1,048,576 bytes of tensors",
    ),
    "overlapping": (
        head(tensors=2) + tensor("t", (64,), 0, 0) + tensor("u", (64,), 0, 128),
        "u overlaps the tensor before it",
    ),
    "not aligned": (head(tensors=1) + tensor("t", (32,), 8, 7), "t does not begin at a multiple of 32"),
    "a tensor twice": (head(tensors=2) + tensor("t", (8,), 0, 0) + tensor("t", (8,), 0, 32), "t is listed twice"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_right_is_one_message(kind: str) -> None:
    content, message = WRONG[kind]
    size = len(content) + -len(content) % 32 + ROOM
    with bounded(), pytest.raises(InputError) as error:
        read_gguf_header(source_of(content, size))
    assert error.value.message == NAME + message


@pytest.mark.parametrize("length", [0, 3, 4, 10, 24, 60, 200])
def test_a_truncated_header_is_one_message(length: int) -> None:
    content = header_bytes(METADATA, TENSORS)[:length]
    with pytest.raises(InputError) as error:
        read_gguf_header(source_of(content))
    assert error.value.message == f"{NAME}the header is truncated: the file ends after {length} bytes"


def test_a_header_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "LARGEST_HEADER", 2**21)
    many = head(1) + text("k") + struct.pack("<IIQ", 9, 8, 300_000) + text("0123456789") * 300_000
    with bounded(), pytest.raises(InputError, match="the header is longer than 2 MiB"):
        read_gguf_header(source_of(many))


@pytest.mark.parametrize("item", [b"\0" * 8, struct.pack("<Q", 12) + b"x" * 12], ids=["empty", "short"])
def test_millions_of_texts_take_bounded_time(item: bytes) -> None:
    content = head(1) + text("k") + struct.pack("<IIQ", 9, 8, 1_000_000) + item * 1_000_000
    with bounded(5, 64):
        assert read_gguf_header(source_of(content)).lengths == {"k": 1_000_000}


@given(st.data())
def test_a_true_header_with_wrong_bytes_gives_a_header_or_one_error(data: st.DataObject) -> None:
    content = bytearray(header_bytes(METADATA, TENSORS))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    kept = bytes(content[: data.draw(st.integers(0, len(content)))])
    room = data.draw(st.sampled_from([0, 10**6]))
    found = read_safely(lambda: read_gguf_header(source_of(kept, len(kept) + room)), NAME)
    if found is not None:
        assert isinstance(found, GgufHeader) and all(isinstance(item, Tensor) for item in found.tensors)


@given(st.binary(max_size=400))
def test_any_bytes_give_a_header_or_one_error(content: bytes) -> None:
    read_safely(lambda: read_gguf_header(source_of(b"GGUF\3\0\0\0" + content)), NAME)
