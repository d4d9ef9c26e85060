"""Checks the words of a command line before any verb uses them; numbers must be ASCII digits."""

from __future__ import annotations

import argparse
import re
import unicodedata
from collections.abc import Callable, Sequence

from rigup.errors import InputError
from rigup.plain_values import cut

LONGEST = 65_536
_WHOLE = r"[+-]?[0-9]{1,15}"
_DECIMAL = r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?"


def check_words(words: Sequence[str]) -> None:
    """Raises InputError for a word that is empty, too long, not UTF-8, or has control characters."""
    option = ""
    for number, word in enumerate(words, 1):
        name, given, value = word.partition("=") if re.match(r"--?[a-z]", word) else ("", "", word)
        where = (name if given else option) or f"argument {number}"
        if not value.strip() and (given or not name):
            raise InputError(f"{where}: empty", "omit it, or give a value")
        if len(word) > LONGEST:
            raise InputError(f"{where}: {len(word):,} characters are too many", f"write at most {LONGEST:,} characters")
        if any(unicodedata.category(character) == "Cs" for character in word):
            raise InputError(f"{where}: not UTF-8", "write it in UTF-8")
        if any(unicodedata.category(character) == "Cc" for character in word):
            raise InputError(f"{where}: contains a control character", "write it on one line, in printable characters")
        option = name if name and not given else ""


def whole_number(flag: str, least: int = -(10**15), most: int = 10**15) -> Callable[[str], int]:
    """Returns an argparse type for a whole number. It raises InputError naming the flag."""

    def read(text: str) -> int:
        if not re.fullmatch(_WHOLE, text):
            raise InputError(f'{flag}: "{cut(text)}" is not a whole number', "write it in the digits 0 to 9")
        if not least <= int(text) <= most:
            raise InputError(f"{flag}: {text} is not between {least:,} and {most:,}", "omit it to use the default")
        return int(text)

    return read


def add_number(
    parser: argparse._ActionsContainer,
    flag: str,
    text: str,
    default: int | None = None,
    *bounds: int,
    metavar: str = "N",
) -> None:
    """Adds an option that takes a whole number; bounds: the least and the most, none for any. text: its help."""
    parser.add_argument(flag, type=whole_number(flag, *bounds), default=default, metavar=metavar, help=text)


def add_decimal(
    parser: argparse.ArgumentParser, flag: str, text: str, default: float | None = None, metavar: str = "N"
) -> None:
    """Adds an option that takes a number with an optional decimal point. text: its help."""

    def read(text: str) -> float:
        if not re.fullmatch(_DECIMAL, text):
            raise InputError(f'{flag}: "{cut(text)}" is not a number', "write it in the digits 0 to 9, such as 2.5")
        return float(text)

    parser.add_argument(flag, type=read, default=default, metavar=metavar, help=text)
