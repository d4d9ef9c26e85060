"""The header of a GGUF file: its metadata and its list of tensors.

The format: ggml's docs/gguf.md, versions 2 and 3. What llama.cpp allows is the limit: four dimensions, and numbers
that are powers of two as alignment.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from rigup.checkpoints.byte_source import ByteSource
from rigup.checkpoints.tensor import Tensor
from rigup.plain_values import cut
from rigup.quantisation.ggml_types import GGML_TYPES

MAGIC = b"GGUF"
VERSIONS = (2, 3)
WINDOW = 2**20
LARGEST_HEADER = 2**26
MOST_KEYS = 4096
MOST_TENSORS = 200_000
MOST_ITEMS = 4_000_000
COST_OF_AN_ARRAY = 32
"""An array within an array counts as so many items, since it takes as long to read."""
MOST_KEPT = 4096
MOST_LEVELS = 2
MOST_DIMENSIONS = 4
LONGEST_NAME = 512
LONGEST_TEXT = 2**21
LARGEST_SIZE = 2**48
LARGEST_ALIGNMENT = 2**20
STRING, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

Value = bool | int | float | str | tuple[bool | int | float, ...]


@dataclass(frozen=True)
class GgufHeader:
    """What one file says of itself. Arrays of text and long ones are not kept: `lengths` has how long each array is."""

    metadata: Mapping[str, Value]
    lengths: Mapping[str, int]
    tensors: tuple[Tensor, ...]


def read_gguf_header(source: ByteSource) -> GgufHeader:
    """The header of one file; of a split model it is that of one shard.

    Raises InputError, beginning with the file's name, where the header is truncated or absurd, or where tensors
    overlap or lie outside the file; other RigupErrors where the file cannot be read.
    """
    reader = _Reader(source)
    if reader.take(4) != MAGIC:
        raise source.damaged("not a GGUF file")
    version = reader.number("I")
    if version not in VERSIONS:
        raise source.damaged(f"GGUF version {version} is not supported")
    tensors, keys = reader.count("tensors", MOST_TENSORS), reader.count("keys", MOST_KEYS)
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(keys):
        key = reader.name("a key")
        if key in metadata or key in lengths:
            raise source.damaged(f"{cut(key)} is given twice")
        kind = int(reader.number("I"))
        if kind == ARRAY:
            lengths[key], items = reader.array(key, 1)
            if items is not None:
                metadata[key] = items
        else:
            metadata[key] = reader.value(key, kind)
    placed = [_entry(reader) for _ in range(tensors)]
    return GgufHeader(metadata, lengths, _checked(source, placed, reader.position, _alignment(source, metadata)))


def _alignment(source: ByteSource, metadata: Mapping[str, Value]) -> int:
    found = metadata.get("general.alignment", 32)
    if type(found) is not int or not 0 < found <= LARGEST_ALIGNMENT or found & (found - 1):
        raise source.damaged(f"general.alignment: {cut(ascii(found))} is not a power of two")
    return found


def _entry(reader: _Reader) -> tuple[int, Tensor]:
    """One line of the list of tensors: where its bytes begin, and the tensor."""
    name, damaged = reader.name("a tensor"), reader.source.damaged
    dimensions = int(reader.number("I"))
    if dimensions > MOST_DIMENSIONS:
        raise damaged(f"{cut(name)}: {dimensions} dimensions are more than {MOST_DIMENSIONS}")
    sizes = [int(reader.number("Q")) for _ in range(dimensions)]
    number, begin = int(reader.number("I")), int(reader.number("Q"))
    kind = GGML_TYPES.get(number)
    if kind is None:
        raise damaged(f"{cut(name)}: unknown type {number}")
    row = sizes[0] if sizes else 1
    elements = math.prod(sizes)
    if elements > LARGEST_SIZE or any(size > LARGEST_SIZE for size in sizes) or row % kind.elements:
        raise damaged(f"{cut(name)}: {cut(str(sizes))} is not a shape of {kind.name}")
    return begin, Tensor(name, kind.name, tuple(reversed(sizes)), elements // kind.elements * kind.bytes)


def _checked(source: ByteSource, placed: list[tuple[int, Tensor]], header: int, alignment: int) -> tuple[Tensor, ...]:
    """The tensors in the order of their bytes, all within the file and none over another."""
    start = -(-header // alignment) * alignment
    room, end = source.size - start, 0
    names = set()
    placed = sorted(placed, key=lambda entry: entry[0])
    for begin, tensor in placed:
        if tensor.name in names:
            raise source.damaged(f"{cut(tensor.name)} is listed twice")
        names.add(tensor.name)
        if begin % alignment:
            raise source.damaged(f"{cut(tensor.name)} does not begin at a multiple of {alignment}")
        if begin < end:
            raise source.damaged(f"{cut(tensor.name)} overlaps the tensor before it")
        end = begin + tensor.bytes
        if end > room:
            raise source.damaged(
                f"{cut(tensor.name)} ends at byte {end:,}, but the file has {max(room, 0):,} bytes of tensors"
            )
    return tuple(tensor for _, tensor in placed)


class _Reader:
    """Reads the header from its start on, a window at a time."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self._window = b""
        self._start = 0
        self._at = 0
        self._items = MOST_ITEMS

    @property
    def position(self) -> int:
        """How many bytes of the file are read."""
        return self._start + self._at

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if self._at + count > len(self._window):
            self._refill(count)
        self._at += count
        return self._window[self._at - count : self._at]

    def _refill(self, count: int) -> None:
        position = self.position
        if position + count > LARGEST_HEADER:
            raise self.source.damaged(f"the header is longer than {LARGEST_HEADER // 2**20} MiB")
        if position + count > self.source.size:
            raise self.source.damaged(f"the header is truncated: the file ends after {self.source.size:,} bytes")
        rest = self._window[self._at :]
        wanted = max(WINDOW, count) - len(rest)
        self._window = rest + self.source.read(position + len(rest), wanted)
        self._start, self._at = position, 0

    def number(self, code: str) -> int | float | bool:
        """The next number; `code` as `struct` has it."""
        value: int | float | bool = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return value

    def count(self, what: str, most: int) -> int:
        """How many of something follow."""
        found = int(self.number("Q"))
        if found > most:
            raise self.source.damaged(f"{found:,} {what} are more than the limit of {most:,}")
        return found

    def name(self, what: str) -> str:
        """A name in printable characters."""
        length = int(self.number("Q"))
        if not 0 < length <= LONGEST_NAME:
            raise self.source.damaged(f"{what} has a name of {length:,} bytes")
        try:
            text = self.take(length).decode()
        except UnicodeDecodeError:
            text = ""
        if not text.isprintable() or not text:
            raise self.source.damaged(f"{what} has a name that is not text")
        return text

    def value(self, key: str, kind: int) -> Value:
        """A single value: a number or a text."""
        if kind == STRING:
            length = int(self.number("Q"))
            if length > LONGEST_TEXT:
                raise self.source.damaged(f"{cut(key)}: a text of {length:,} bytes is longer than {LONGEST_TEXT:,}")
            return self.take(length).decode(errors="replace")
        if kind not in NUMBERS:
            raise self.source.damaged(f"{cut(key)}: unknown kind of value {kind}")
        return self.number(NUMBERS[kind])

    def array(self, key: str, level: int) -> tuple[int, tuple[bool | int | float, ...] | None]:
        """The length of an array, and its items where they are numbers and few."""
        kind, count = int(self.number("I")), int(self.number("Q"))
        if kind not in (STRING, ARRAY, *NUMBERS):
            raise self.source.damaged(f"{cut(key)}: unknown kind of value {kind}")
        if level > MOST_LEVELS:
            raise self.source.damaged(f"{cut(key)}: nested deeper than {MOST_LEVELS} levels")
        size = struct.calcsize(NUMBERS.get(kind, "Q"))
        self._items -= count * (COST_OF_AN_ARRAY if kind == ARRAY else 1)
        if count > MOST_ITEMS or self._items < 0:
            raise self.source.damaged(f"{cut(key)}: {count:,} values are too many")
        if count * size > self.source.size - self.position:
            raise self.source.damaged(f"{cut(key)}: {count:,} values do not fit into the file")
        if kind == STRING:
            for _ in range(count):
                self._skip(int(self.number("Q")))
        elif kind == ARRAY:
            for _ in range(count):
                self.array(key, level + 1)
        elif count <= MOST_KEPT:
            return count, struct.unpack(f"<{count}{NUMBERS[kind]}", self.take(count * size))
        else:
            self._skip(count * size)
        return count, None

    def _skip(self, count: int) -> None:
        """Goes over bytes that nobody needs, and reads them only where they lie in the window."""
        if self._at + count <= len(self._window):
            self._at += count
            return
        position = self.position + count
        if position > min(LARGEST_HEADER, self.source.size):
            self._refill(count)  # says which of the two it is
        self._window, self._start, self._at = b"", position, 0
