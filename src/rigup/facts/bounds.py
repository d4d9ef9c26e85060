"""Parses output of a host within limits, with one kind of error that names the place. Pure.

rigup does not trust a host, because root there controls its output. `json_of` parses a JSON document, which
`host_output.checked` validates against a model before any other code sees it; `count` and `line` do the same for single
numbers and words. Invalid output raises `Unreadable`, which fails only that host.
"""

import ast
import json
import math
import re
from typing import Any, NoReturn

from rigup.printable import one_line

HINT = "fix it on the host; rigup changes nothing there until then"
MOST_CHARACTERS = 1 << 20
"""Limit for one document: a release's manifest, a response, a record."""
MOST_LINE = 4096
"""Limit for one word or line: a name, a path, a version, a line of a log."""
MOST_DEPTH = 24
MOST_VALUES = 50_000
"""Limit for numbers, strings, lists and objects in one document."""
MOST_COUNT = 2**53
"""Larger numbers are not exact in JSON, and nothing on a host counts this far."""
LAST_SECOND = 253_402_300_799
"""9999-12-31 in seconds since 1970, the latest time that Python can represent."""
_SHOWN = 60
_DIGITS = re.compile(r"[0-9]{1,16}")


class Unreadable(ValueError):
    """Raised if output of a host is invalid. hint: how to fix it, as far as that is known."""

    def __init__(self, message: str, hint: str = HINT) -> None:
        super().__init__(message)
        self.hint = hint


def line(text: str) -> str:
    """A word or a line, made printable and put on one line. Raises ValueError if it is too long."""
    if len(text) > MOST_LINE:
        raise ValueError(f"is longer than {MOST_LINE:,} characters")
    return one_line(text) if not text.isprintable() or not text.isascii() else text


def count(text: str, most: int = MOST_COUNT) -> int:
    """An unsigned number in ASCII digits, up to `most`. Raises ValueError for anything else."""
    if not _DIGITS.fullmatch(text) or (number := int(text)) > most:
        raise ValueError(f'"{shown(text)}" is not a number from 0 to {most}')
    return number


def json_of(text: str, document: str) -> Any:
    """The value of a JSON document. Raises Unreadable, with the document's name, if it is invalid or too large."""
    if len(text) > MOST_CHARACTERS:
        raise Unreadable(f"{document}: longer than {MOST_CHARACTERS:,} characters")
    if not text.strip():
        raise Unreadable(f"{document}: empty")
    try:
        value = json.loads(text, parse_constant=_no_number, parse_int=_int, parse_float=_float)
    except RecursionError:
        raise Unreadable(f"{document}: nested deeper than {MOST_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"{document}: not JSON: {error.msg} at character {error.pos}") from None
    except ValueError as error:
        raise Unreadable(f"{document}: {error}") from None
    _check_size(value, document)
    return value


def literal_of(text: str, document: str) -> Any:
    """The value of a Python literal. Raises Unreadable as `json_of` does, and SyntaxError for a truncated line."""
    if len(text) > 4 * MOST_LINE:
        raise Unreadable(f"{document}: longer than {4 * MOST_LINE:,} characters")
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise Unreadable(f"{document}: not a value: {shown(text)}") from None
    _check_size(value, document)
    return value


def shown(text: str) -> str:
    """The beginning of a text, for a message."""
    start = one_line(text[: 4 * _SHOWN])
    return start if len(start) <= _SHOWN else f"{start[:_SHOWN]}..."


def kind(value: Any) -> str:
    """The type of a plain value, in words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    names = {str: "a string", int: "a number", float: "a number", dict: "an object", list: "a list", tuple: "a list"}
    return next((words for of, words in names.items() if isinstance(value, of)), type(value).__name__)


def _check_size(value: Any, document: str) -> None:
    level, total = [value], 0
    for _ in range(MOST_DEPTH):
        total += len(level)
        if total > MOST_VALUES:
            raise Unreadable(f"{document}: more than {MOST_VALUES:,} values")
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            return
    raise Unreadable(f"{document}: nested deeper than {MOST_DEPTH} levels")


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple, set, frozenset)) else ()


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _int(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"the number {shown(text)} is too large")
    return int(text)


def _float(text: str) -> float:
    number = float(text) if len(text) <= 64 else math.inf
    if math.isinf(number):
        raise ValueError(f"the number {shown(text)} is too large")
    return number
