"""Values as a user's Python has them: how a message shows one, and the bounds that hold for every setting. Pure."""

from __future__ import annotations

import unicodedata

from rigup.errors import InputError
from rigup.printable import one_line
from rigup.regular_files import MOST_LEVELS

MOST_VALUES = 50_000
LONGEST_TEXT = 65_536
LARGEST_NUMBER = 10**30
_LINES = ("flags", "environment")  # whose values may have several lines: a chat template, say


def quoted(value: object) -> str:
    """A value as a message shows it: text in double quotes, long things cut."""
    try:
        text = f'"{value}"' if isinstance(value, str) else repr(value)
    except Exception:  # too many digits, too deep, or a class of the user's own
        text = f"the {type(value).__name__}"
    return cut(text)


def check_bounds(value: object, where: str, lines: bool = False) -> None:
    """Raises InputError, with the path to it, for what no setting has: text with control characters, numbers without
    end, tables in tables without end. lines: whether any text may have several lines.
    """
    _check_part(value, where, MOST_LEVELS, [MOST_VALUES], lines)


def _check_part(value: object, where: str, levels: int, left: list[int], lines: bool) -> None:
    left[0] -= 1
    if levels < 0 or left[0] < 0:
        what = f"nested deeper than {MOST_LEVELS} levels" if levels < 0 else f"more than {MOST_VALUES:,} values"
        raise InputError(f"{where}: {what}", "write fewer tables and lists inside each other")
    if isinstance(value, str):
        _check_text(value, where, lines)
    elif isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        raise InputError(f"{where}: {quoted(value)} is too large a number", "write a number in the range of the key")
    elif isinstance(value, dict):
        for key, part in value.items():
            if isinstance(key, str):
                _check_text(key, f"{where}: a key", lines=False)
            _check_part(part, f"{where}.{cut(str(key))}", levels - 1, left, lines or key in _LINES)
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            _check_part(part, f"{where}[{number}]", levels - 1, left, lines)


def _check_text(text: str, where: str, lines: bool) -> None:
    if len(text) > LONGEST_TEXT:
        raise InputError(
            f"{where}: {len(text):,} characters are too many", f"write at most {LONGEST_TEXT:,} characters"
        )
    if text.isprintable():
        return
    if any(unicodedata.category(c) in ("Cc", "Cs") and not (lines and c in "\n\t") for c in text):
        hint = "write printable characters" if lines else "write it on one line, in printable characters"
        raise InputError(f"{where}: {quoted(ascii(text)[1:-1])} contains a control character", hint)


def cut(text: str) -> str:
    """The beginning of a long text."""
    return one_line(text if len(text) <= 60 else text[:57] + "...")
