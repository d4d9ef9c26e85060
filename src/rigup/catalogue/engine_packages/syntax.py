"""Python sources inside a wheel, read as text: options that they add, and what they assign to names."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterator


def trees(wheel: zipfile.ZipFile, pattern: re.Pattern[str]) -> Iterator[ast.Module]:
    """The syntax tree of each file whose path matches from its start."""
    for member in wheel.namelist():
        if pattern.match(member):
            yield ast.parse(wheel.read(member))


def added_arguments(tree: ast.Module) -> Iterator[tuple[set[str], str]]:
    """The option names of each call of `add_argument`, and its action as source text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            action = " ".join(ast.unparse(key.value) for key in node.keywords if key.arg == "action")
            yield {str(word) for word in words if str(word).startswith("-")}, action


def assigned(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """What each name is assigned, wherever in the tree, in order."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                found.setdefault(target.id, []).append(value)
    return found


def keys(value: ast.expr) -> set[str]:
    """The literal keys of a dictionary, or the literal strings of a list, tuple, set or `Literal[...]`."""
    inside = value.slice if isinstance(value, ast.Subscript) else value
    parts = inside.keys if isinstance(inside, ast.Dict) else getattr(inside, "elts", ())
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def keys_in(wheel: zipfile.ZipFile, path: str, name: str) -> set[str]:
    """The literal keys of what a name is assigned in a file. Raises KeyError if there are none."""
    found = {key for value in assigned(ast.parse(wheel.read(path))).get(name, ()) for key in keys(value)}
    if not found:
        raise KeyError(f"no {name} in {path}")
    return found
