"""The header of a safetensors file: which tensors are in it, how they are stored, and where.

The format: eight bytes of length, that many bytes of JSON, then the tensors without gaps (safetensors' README.md,
"Format"; the names of dtypes as in its `Dtype`).
"""

from __future__ import annotations

import math
from typing import Any

from rigup.checkpoints.byte_source import ByteSource
from rigup.checkpoints.tensor import Tensor
from rigup.plain_values import cut
from rigup.sources.bounded_http import read_json
from rigup.units import bytes_text

LARGEST_HEADER = 2**25
"""Bytes. The format allows 100 MB; the largest shards that are published have some hundred kB."""
MOST_VALUES = 2_000_000
READ_AHEAD = 2**17
LARGEST_SIZE = 2**48
MOST_DIMENSIONS = 16
LONGEST_NAME = 512
METADATA = "__metadata__"
DTYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


def read_safetensors_header(source: ByteSource) -> tuple[Tensor, ...]:
    """Every tensor of one file, in the order of their bytes.

    Raises InputError, beginning with the file's name, where the header is truncated, too long or not JSON, or where
    tensors overlap, leave gaps or lie outside the file; other RigupErrors where the file cannot be read.
    """
    ahead = source.read(0, READ_AHEAD)
    if len(ahead) < 8:
        raise source.damaged(f"{source.size} bytes are too few for a safetensors file")
    length = int.from_bytes(ahead[:8], "little")
    if length > LARGEST_HEADER:
        raise source.damaged(
            f"the header claims {bytes_text(min(length, 2**63))}, more than the limit of {bytes_text(LARGEST_HEADER)}"
        )
    start = 8 + length
    if start > source.size:
        raise source.damaged(f"the header is truncated: {source.size - 8:,} of {length:,} bytes")
    content = ahead[8:start] + source.read(len(ahead), start - len(ahead))
    try:
        entries = read_json(content, MOST_VALUES)
    except ValueError as error:
        raise source.damaged(f"the header is not JSON as safetensors has it: {str(error)[:100]}") from None
    if not isinstance(entries, dict):
        raise source.damaged("the header is not a table of tensors")
    return _tensors(source, entries, source.size - start)


def _tensors(source: ByteSource, entries: dict[str, Any], room: int) -> tuple[Tensor, ...]:
    """The tensors, which must fill `room` bytes without gaps."""
    found = sorted(
        (_entry(source, name, entry) for name, entry in entries.items() if name != METADATA),
        key=lambda placed: (placed[0], placed[1].bytes),
    )
    end = 0
    for begin, tensor in found:
        if begin + tensor.bytes > room:
            raise source.damaged(
                f"{cut(tensor.name)} ends at byte {begin + tensor.bytes:,}, but the file has {room:,} bytes of tensors"
            )
        if begin < end:
            raise source.damaged(f"{cut(tensor.name)} overlaps the tensor before it")
        if begin > end:
            raise source.damaged(f"{begin - end:,} bytes before {cut(tensor.name)} belong to no tensor")
        end = begin + tensor.bytes
    if end < room:
        raise source.damaged(f"{room - end:,} bytes at the end belong to no tensor")
    return tuple(tensor for _, tensor in found)


def _entry(source: ByteSource, name: str, entry: Any) -> tuple[int, Tensor]:
    """One line of the header: where the tensor begins, and the tensor."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise source.damaged(f"{cut(ascii(name))} is not a tensor's name")
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    dtype: Any = fields.get("dtype")
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise source.damaged(f"{cut(name)}: unknown dtype {cut(ascii(dtype))}")
    if not _sizes(shape) or len(shape) > MOST_DIMENSIONS:
        raise source.damaged(f"{cut(name)}: not a shape: {cut(ascii(shape))}")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise source.damaged(f"{cut(name)}: not a pair of offsets: {cut(ascii(offsets))}")
    size = offsets[1] - offsets[0]
    if math.prod(shape) * DTYPE_BITS[dtype] != size * 8:
        raise source.damaged(f"{cut(name)}: {size:,} bytes are not {cut(str(shape))} of {dtype}")
    return offsets[0], Tensor(name, dtype, tuple(shape), size)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(part) is int and 0 <= part <= LARGEST_SIZE for part in value)
