"""What a test rests on of a Python file: what it does, not what it says to a reader or a user."""

from __future__ import annotations

import pytest

from tests.code_digest import code_of

MODULE = '''
"""What it is for."""
from rigup.errors import HostFailed

HINT = "free some space"


def room(host, free):
    """The room."""
    if free < 10:
        raise HostFailed(f"{host}: {free} bytes are free", HINT if host else "look")  # too few
    put(host, "name", problem="could not send it", hint="check the disk")
    return free
'''


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("What it is for.", "What it is good for."),
        ("The room.", "How much room."),
        ("  # too few", ""),
        (" bytes are free", " bytes are left"),
        ("free some space", "make room"),
        ('"look"', '"look around"'),
        ("could not send", "cannot send"),
        ("check the disk", "check it"),
        ("\n\n\ndef", "\n\ndef"),
    ],
)
def test_texts_and_comments_do_not_count(was: str, becomes: str) -> None:
    assert was in MODULE
    assert code_of(MODULE.replace(was, becomes).encode()) == code_of(MODULE.encode())


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("free < 10", "free < 11"),
        ("{free} bytes", "{host} bytes"),
        ("HostFailed(f", "Refused(f"),
        ("HINT if host", "HINT if free"),
        ("return free", "return host"),
        ('"name"', '"other"'),
        ("check the disk", ""),
        ("raise HostFailed", "return HostFailed"),
    ],
)
def test_what_it_does_counts(was: str, becomes: str) -> None:
    assert was in MODULE
    assert code_of(MODULE.replace(was, becomes).encode()) != code_of(MODULE.encode())
