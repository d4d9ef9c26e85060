"""Turns pydantic's errors about raw values into one message with the path to the value, and one hint."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from rigup.errors import InputError
from rigup.plain_values import cut, quoted
from rigup.units import Frozen

Noun = TypeVar("Noun", bound=Frozen)

_KINDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be True or False",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
}


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    folded = {item.lower(): item for item in names}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f'try "{folded[near[0]]}"' if near else f"choose from: {', '.join(names)}"


def check_keys(data: dict[Any, Any], noun: type[Frozen], where: str) -> None:
    """Raises InputError for the first key that the noun does not have, with the most similar one as hint."""
    known = [name for name in noun.model_fields if name != "name"]
    for key in data:
        if key not in known:
            raise InputError(f"{where}.{cut(str(key))}: unknown key", suggestion(str(key), known))


def validated(noun: type[Noun], data: dict[str, Any], where: str) -> Noun:
    """The noun that `data` describes.

    Converts nothing: "8000" is not a port. Raises InputError for the first error.
    """
    try:
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        key = next(key for key, value in data.items() if not _is_plain(value))
        raise InputError(
            f"{where}.{key}: {quoted(data[key])} is not a plain value",
            "use text, numbers, True, False, lists and tables",
        ) from None
    try:
        return noun.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise _complaint(error, noun, where) from None


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _complaint(error: ValidationError, noun: type[Frozen], where: str) -> InputError:
    found = error.errors()
    first = found[0]
    location = _location(first["loc"])
    value, kind, context = first["input"], first["type"], first.get("ctx", {})
    path = where + location
    several = [entry for entry in found if _location(entry["loc"]) == location]
    if len(several) > 1:
        return InputError(f"{path}: {quoted(value)} cannot be used here", "use " + _alternatives(several))
    if kind == "literal_error":
        choices = _choices(noun, first["loc"])
        return InputError(
            f"{path}: must be one of {', '.join(choices)}, not {quoted(value)}", suggestion(str(value), choices)
        )
    if kind in _LIMITS:
        words, bound = _LIMITS[kind]
        limit = int(context[bound]) if float(context[bound]).is_integer() else context[bound]
        return InputError(f"{path}: must be {words} {limit}, not {quoted(value)}", "choose a value in that range")
    message = _KINDS.get(kind, first["msg"][0].lower() + first["msg"][1:])
    return InputError(f"{path}: {message}, not {quoted(value)}", "correct the type of the value")


def _location(loc: tuple[int | str, ...]) -> str:
    """ ".gpus[2]": pydantic's location without the names of union members, which do not exist in the user's file."""
    text = ""
    members = {"int", "str", "bool", "float", "list[any]", "dict[str,any]", "[key]"}
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in members:
            text += f".{part}"
    return text


def _alternatives(errors: list[Any]) -> str:
    kinds = (_KINDS.get(error["type"], error["msg"]).removeprefix("must be ").removeprefix("a ") for error in errors)
    return " or ".join(dict.fromkeys(kinds))


def _choices(noun: type[Frozen], loc: tuple[int | str, ...]) -> tuple[str, ...]:
    annotation = noun.model_fields[str(loc[0])].annotation
    members = [annotation, *get_args(annotation)]
    literals = [get_args(member) for member in members if get_args(member) and isinstance(get_args(member)[0], str)]
    return tuple(literals[0]) if literals else ()
