"""Which layers something holds for, as text: "0-2, 5, 8-20/3" are layers 0, 1, 2, 5, 8, 11, 14, 17 and 20."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

MOST_LAYERS = 1024
_LONGEST_TEXT = 8192
_PART = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4})(?:/([0-9]{1,4}))?)?")


def layer_numbers(text: object) -> tuple[int, ...]:
    """The layers that a text names, ascending: parts with commas between them, each `first`, `first-last` or
    `first-last/step`.

    Raises ValueError for anything else, a layer that is named twice, and a layer beyond MOST_LAYERS.
    """
    if isinstance(text, tuple) and all(isinstance(number, int) and 0 <= number < MOST_LAYERS for number in text):
        return _ascending(text)
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
        raise ValueError(f'write layers as "0-2, 5, 8-20/3", not {str(text)[:40]!r}')
    return _ascending(number for part in text.split(",") for number in _part(part.strip()))


def check_each_once(name: str, ranges: Iterable[Iterable[int]], layers: int | None = None) -> None:
    """Raises ValueError unless each layer is in one of the ranges. layers: how many there are, None for any number."""
    numbers = sorted(number for each in ranges for number in each)
    if numbers != list(range(len(numbers) if layers is None else layers)):
        count = "from 0 on" if layers is None else f"from 0 to {layers - 1}"
        raise ValueError(f"{name}: each layer {count} must be in one entry, and in no other")


def _part(text: str) -> range:
    found = _PART.fullmatch(text)
    first, last, step = (int(value) if value else None for value in found.groups()) if found else (None, None, None)
    if first is None or step == 0:
        raise ValueError(f'write layers as "0-2, 5, 8-20/3", not {text[:40]!r}')
    last = first if last is None else last
    if last < first or last >= MOST_LAYERS:
        raise ValueError(f"layers {text}: the last must not be below the first, nor beyond {MOST_LAYERS - 1}")
    return range(first, last + 1, step or 1)


def _ascending(numbers: Iterable[int]) -> tuple[int, ...]:
    found = tuple(sorted(numbers))
    if twice := [number for number, following in pairwise(found) if number == following]:
        raise ValueError(f"layer {twice[0]} is named twice")
    return found


def layers_text(numbers: Iterable[int]) -> str:
    """The shortest such text that layer_numbers() reads back: runs with one distance, from the first layer on."""
    left, parts = sorted(numbers), list[str]()
    while left:
        length = _run(left)
        step = left[1] - left[0] if length > 1 else 1
        run = f"{left[0]}-{left[length - 1]}" if length > 1 else f"{left[0]}"
        parts.append(run if step == 1 else f"{run}/{step}")
        left = left[length:]
    return ", ".join(parts)


def _run(numbers: list[int]) -> int:
    """How many numbers, from the first on, have one distance; two alone form a run only if they are neighbours."""
    length = min(2, len(numbers))
    while length < len(numbers) and numbers[length] - numbers[length - 1] == numbers[1] - numbers[0]:
        length += 1
    return length if length > 2 or (length == 2 and numbers[1] - numbers[0] == 1) else 1


LayerRange = Annotated[tuple[int, ...], BeforeValidator(layer_numbers), PlainSerializer(layers_text)]
