"""Layers as text, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.layer_range import MOST_LAYERS, layer_numbers, layers_text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", (0,)),
        ("0-2, 5, 8-20/3", (0, 1, 2, 5, 8, 11, 14, 17, 20)),
        ("8-20/3,0-2,5", (0, 1, 2, 5, 8, 11, 14, 17, 20)),
        ("3-59/4", tuple(range(3, 60, 4))),
        ("7-7", (7,)),
    ],
)
def test_a_text_names_layers(text: str, numbers: tuple[int, ...]) -> None:
    assert layer_numbers(text) == numbers


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((0, 1), "0-1"), ((0, 2), "0, 2"), ((0, 1, 2, 6, 10, 14), "0-2, 6-14/4"), ((4,), "4"), ((), "")],
)
def test_the_shortest_text(numbers: tuple[int, ...], text: str) -> None:
    assert layers_text(numbers) == text


@given(st.sets(st.integers(0, MOST_LAYERS - 1), min_size=1, max_size=80))
def test_what_is_written_is_read_back(numbers: set[int]) -> None:
    assert layer_numbers(layers_text(numbers)) == tuple(sorted(numbers))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write layers as \"0-2, 5, 8-20/3\", not ''"),
        ("0-2;5", "write layers as \"0-2, 5, 8-20/3\", not '0-2;5'"),
        ("0-4/0", "write layers as \"0-2, 5, 8-20/3\", not '0-4/0'"),
        ("-1", "write layers as \"0-2, 5, 8-20/3\", not '-1'"),
        ("٣", "write layers as \"0-2, 5, 8-20/3\", not '٣'"),
        ("5-3", "layers 5-3: the last must not be below the first, nor beyond 1023"),
        ("0-1024", "layers 0-1024: the last must not be below the first, nor beyond 1023"),
        ("0-4, 2", "layer 2 is named twice"),
        ("0," * 5000, 'write layers as "0-2, 5, 8-20/3", not'),
        (["0"], 'write layers as "0-2, 5, 8-20/3", not'),
        ((-1,), 'write layers as "0-2, 5, 8-20/3", not'),
    ],
)
def test_anything_else_is_refused(text: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        layer_numbers(text)
