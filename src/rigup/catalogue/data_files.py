"""Reads and validates catalogue files: TOML with optional [defaults] and one [[table]] for each entry."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rigup.errors import InputError
from rigup.plain_values import check_bounds, cut, quoted
from rigup.regular_files import files_in, read_text, toml_of
from rigup.units import Frozen

Entry = TypeVar("Entry", bound=Frozen)

DATA = Path(__file__).parent / "data"
"""The toolkit's own files."""
EXAMPLE_HINT = "compare with the toolkit's own files under rigup/catalogue/data/"
LARGEST_NUMBER = 10**15
"""No size, speed or count of a catalogue comes near it."""


def toolkit_facts(file: str, kind: type[Entry]) -> Entry:
    """What one of the toolkit's own files says. file: its path below DATA."""
    return kind.model_validate(toml_of(DATA / file, read_text(DATA / file), EXAMPLE_HINT))


def read_entries(
    folder: Path, table: str, kind: type[Entry], wanted: Callable[[str], bool] | None = None
) -> tuple[Entry, ...]:
    """Every entry of every *.toml in a folder, in the order of file names; () if the folder does not exist.

    wanted: says by a file's name, without the suffix, whether to read it; None for all.
    Raises InputError with the file, the entry and the key that is wrong.
    """
    files = (path for path in files_in(folder, ".toml") if wanted is None or wanted(path.stem))
    return tuple(entry for path in files for entry in read_file(path, table, kind))


def read_file(path: Path, table: str, kind: type[Entry]) -> tuple[Entry, ...]:
    """The entries of one file. [defaults] holds keys that every entry starts with."""
    data = toml_of(path, read_text(path), EXAMPLE_HINT)
    for key in data:
        if key not in ("defaults", table):
            raise InputError(f"{path}: {cut(key)}: unknown table", f"write entries of this folder as [[{table}]]")
    rows, defaults = data.get(table, []), data.get("defaults", {})
    if not isinstance(rows, list) or not isinstance(defaults, dict):
        raise InputError(f"{path}: {table}: must be a list of tables", f"write [[{table}]]")
    if not isinstance(usual := defaults.get("sources", {}), dict):
        raise InputError(f"{path}: defaults.sources: must be a table, not {quoted(usual)}", EXAMPLE_HINT)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(f"{path}: {table}[{number}]: must be a table, not {quoted(row)}", f"write [[{table}]]")
    return tuple(
        validated(kind, _merged(defaults, row), path, EXAMPLE_HINT, f"{table}[{n}]") for n, row in enumerate(rows)
    )


def read_lists(folder: Path, kind: type[Entry]) -> tuple[Entry, ...]:
    """Every *.json of a fleet's folder, each what rigup has read from one package.

    Raises InputError with the file and the problem.
    """
    found = []
    for path in files_in(folder, ".json"):
        try:
            found.append(kind.model_validate_json(read_text(path)))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}: {where}: {first['msg']}", "read it again: rigup lock --upgrade ENGINE") from None
    return tuple(found)


def list_text(entry: Frozen) -> str:
    """A file that read_lists reads: one name a line, so that a change is readable in a diff."""
    values = entry.model_dump(mode="json")
    said = {key: sorted(value) if isinstance(value, list) else value for key, value in values.items()}
    return json.dumps(said, indent=1) + "\n"


def _merged(defaults: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """A row with the defaults; sources are merged key by key, so that a row may give one and keep the others."""
    merged = {**defaults, **row}
    if "sources" in defaults and isinstance(row.get("sources", {}), dict):
        merged["sources"] = {**defaults["sources"], **row.get("sources", {})}
    return merged


def validated(kind: type[Entry], data: dict[str, Any], path: Path, hint: str, entry: str = "") -> Entry:
    """A table of a TOML file as an entry. No value is converted: true and "8" are not 8. entry: where the table is.

    Raises InputError with the file and the key that is wrong.
    """
    for key, part in data.items():
        where = f"{path}: {entry}.{cut(key)}" if entry else f"{path}: {cut(key)}"
        check_bounds(part, where, lines=True)
        _check_parts(part, where, hint)
    try:
        return kind.model_validate_json(json.dumps(data), strict=True)  # in JSON, a list may become a tuple or a set
    except ValidationError as error:
        first = error.errors()[0]
    keys = ".".join([entry, *(cut(str(part)) for part in first["loc"] if part != "[key]")]).removeprefix(".")
    raise InputError(f"{path}: {keys}: {_message(first)}", hint)


def _check_parts(value: Any, where: str, hint: str) -> None:
    """Raises InputError for a date or time, and for a number that is not finite or too large."""
    if isinstance(value, dict):
        for key, part in value.items():
            _check_parts(part, f"{where}.{cut(key)}", hint)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            _check_parts(part, f"{where}[{number}]", hint)
    elif isinstance(value, (int, float)):
        if not math.isfinite(value) or abs(value) > LARGEST_NUMBER:
            raise InputError(f"{where}: {quoted(value)} is not a number up to {LARGEST_NUMBER:,}", hint)
    elif not isinstance(value, str):
        raise InputError(f"{where}: must be a number, text, a list or a table, not {quoted(str(value))}", hint)


def _message(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    if error["type"] == "missing":
        return "missing"
    message: str = error["msg"].removeprefix("Value error, ")
    found = f", not {quoted(error['input'])}" if error["type"].endswith("_type") else ""
    return message[0].lower() + message[1:] + found
