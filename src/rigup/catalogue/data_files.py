"""Reads and validates catalogue files: TOML with optional [defaults] and one [[table]] for each entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rigup.errors import InputError
from rigup.regular_files import files_in, read_text, toml_of
from rigup.units import Frozen

Entry = TypeVar("Entry", bound=Frozen)

EXAMPLE_HINT = "compare with the toolkit's own files under rigup/catalogue/data/"


def read_entries(folder: Path, table: str, kind: type[Entry]) -> tuple[Entry, ...]:
    """Every entry of every *.toml in a folder, in the order of file names; () if the folder does not exist.

    Raises InputError with the file, the entry and the key that is wrong.
    """
    return tuple(entry for path in files_in(folder, ".toml") for entry in read_file(path, table, kind))


def read_file(path: Path, table: str, kind: type[Entry]) -> tuple[Entry, ...]:
    """The entries of one file. [defaults] holds keys that every entry starts with."""
    data = toml_of(path, read_text(path), EXAMPLE_HINT)
    for key in data:
        if key not in ("defaults", table):
            raise InputError(f"{path}: {key}: unknown table", f"write entries of this folder as [[{table}]]")
    rows, defaults = data.get(table, []), data.get("defaults", {})
    if not isinstance(rows, list) or not isinstance(defaults, dict):
        raise InputError(f"{path}: {table}: must be a list of tables", f"write [[{table}]]")
    if not isinstance(usual := defaults.get("sources", {}), dict):
        raise InputError(f"{path}: defaults.sources: must be a table, not {usual!r}", EXAMPLE_HINT)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(f"{path}: {table}[{number}]: must be a table, not {row!r}", f"write [[{table}]]")
    return tuple(_entry(path, f"{table}[{n}]", _merged(defaults, row), kind) for n, row in enumerate(rows))


def _merged(defaults: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """A row with the defaults; sources are merged key by key, so that a row may give one and keep the others."""
    merged = {**defaults, **row}
    if "sources" in defaults and isinstance(row.get("sources", {}), dict):
        merged["sources"] = {**defaults["sources"], **row.get("sources", {})}
    return merged


def _entry(path: Path, where: str, data: dict[str, Any], kind: type[Entry]) -> Entry:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        keys = "".join(f".{part}" for part in first["loc"])
        raise InputError(f"{path}: {where}{keys}: {_message(first)}", EXAMPLE_HINT) from None


def _message(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    if error["type"] == "missing":
        return "missing"
    message: str = error["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:]
