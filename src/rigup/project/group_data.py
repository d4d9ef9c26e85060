"""Reads group_data and inventory files: the user's Python, executed as pyinfra does.

What goes wrong in one is reported by file and line.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from rigup.errors import InputError
from rigup.regular_files import files_in, read_text

GROUP_DATA = "group_data"
LONGEST_COMPLAINT = 400


def load_group_data(root: Path, inventory: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """What the group_data files of a fleet say, each with its path as messages name it, by group."""
    folders = dict.fromkeys((root / GROUP_DATA, inventory.resolve().parent / GROUP_DATA))
    return {path.stem: (execute(path), shown(path)) for folder in folders for path in files_in(folder, ".py")}


def execute(path: Path) -> dict[str, Any]:
    """What a file says: its names and their values, without those of Python's own.

    Raises InputError with file and line where it cannot be executed.
    """
    names: dict[str, Any] = {"__file__": str(path)}
    text = read_text(path, shown(path))
    if "\0" in text:
        raise InputError(f"{shown(path)}: contains a null byte", "remove it: inventory files are Python")
    try:
        exec(compile(text, str(path), "exec"), names)  # noqa: S102  Python of the user's own, as for pyinfra
    except SyntaxError as error:
        where = f"{shown(path)}:{error.lineno}" if error.lineno else shown(path)
        raise InputError(f"{where}: {error.msg}", "fix the syntax error: inventory files are Python") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and GeneratorExit, too
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f"{shown(path)}:{lines[-1]}" if lines else shown(path)
        raise InputError(f"{where}: {_text_of(error)}", "fix the error: the file is executed as Python") from None
    return {key: value for key, value in names.items() if isinstance(key, str) and not key.startswith("__")}


def shown(path: Path) -> str:
    """A path as the user would write it: relative to the working directory where it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _text_of(error: BaseException) -> str:
    """The message of an exception of the user's own code, which may be anything."""
    try:
        text = str(error)
    except Exception:
        text = ""
    shown = text if len(text) <= LONGEST_COMPLAINT else f"{text[:LONGEST_COMPLAINT]}..."
    return f"{type(error).__name__}: {shown}".removesuffix(": ")
