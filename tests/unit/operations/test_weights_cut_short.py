"""A download that ended without an error and without being complete is told in words."""

from __future__ import annotations

import pytest

from rigup.operations.weights import _why


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            '{"complete": false, "missing": ["a.gguf"], "bad": ["b.gguf"]}',
            "the download was cut short, as by a reboot: a.gguf, b.gguf not complete",
        ),
        ("python3: can't open file", "python3: can't open file"),
        ('"text"', '"text"'),
    ],
    ids=["cut short", "no check", "something else"],
)
def test_what_the_check_says_is_told_in_words(said: str, told: str) -> None:
    assert _why(said) == told
