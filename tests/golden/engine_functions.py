"""Runs single functions of an engine's Python source, with stand-ins for what they import. Nothing is installed."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import zipfile
from types import ModuleType, SimpleNamespace
from typing import Any


class Log:
    """A logger that keeps its messages as they would be printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def note(message: Any, *values: Any, **_: Any) -> None:
            text, *more = message if isinstance(message, tuple) else (message,)
            self.lines.append(str(text) % (*more, *values) if (more or values) else str(text))

        return note


def source_of(wheel: zipfile.ZipFile, pattern: str) -> str:
    """The one member whose path matches."""
    (found,) = [name for name in wheel.namelist() if re.fullmatch(pattern, name)]
    return wheel.read(found).decode()


def functions(source: str, *names: str, **given: Any) -> SimpleNamespace:
    """These functions of a module, to be called. given: what else they find there by name."""
    tree = ast.parse(source)
    kept = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    assert sorted(node.name for node in kept) == sorted(names)
    for node in kept:
        node.body = [line for line in node.body if not _imports(line, given)]
    future = ast.ImportFrom(module="__future__", names=[ast.alias(name="annotations")], level=0)
    module = ast.fix_missing_locations(ast.Module(body=[future, *kept], type_ignores=[]))
    space: dict[str, Any] = {"functools": functools, "json": json, "os": os, "re": re, **given}
    exec(compile(module, "engine", "exec"), space)
    return SimpleNamespace(**{name: space[name] for name in names})


def _imports(line: ast.stmt, given: dict[str, Any]) -> bool:
    """Whether a line of a function imports what it is given."""
    return isinstance(line, ast.ImportFrom) and all(alias.name in given for alias in line.names)


def triton(version: str) -> ModuleType:
    """A stand-in for the package, of a version."""
    module = ModuleType("triton")
    module.__dict__["__version__"] = version
    return module
