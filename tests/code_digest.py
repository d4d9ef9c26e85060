"""Digests of files as far as what they do depends on them: of Python without comments, docstrings and error texts."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from rigup import errors
from tests.kept_by_content import KeptByContent

# What carries a text to a user, and nothing that code goes by.
TEXTS = frozenset(
    {
        "Finding",
        "LinkFinding",
        *(name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)),
    }
)
NAMES_OF = "names of "


@lru_cache(maxsize=1024)
def digest_below(path: str, root: Path) -> bytes:
    """Of the names and contents of all files at or below one path; of "names of PATH" the names alone."""
    top = root / path.removeprefix(NAMES_OF)
    assert top.exists(), f"{path}: named by rests_on, but not in the checkout"
    total = hashlib.sha256()
    for file in sorted([top] if top.is_file() else top.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            content = b"" if path.startswith(NAMES_OF) else _digest_of(file)
            total.update(f"{file.relative_to(root)}\0".encode() + content)
    return total.digest()


def _digest_of(file: Path) -> bytes:
    content = file.read_bytes()
    return bytes.fromhex(code_digest(content)) if file.suffix == ".py" else hashlib.sha256(content).digest()


def _code_digest(content: bytes) -> str:
    with suppress(SyntaxError, ValueError):  # a fixture that is meant to be broken
        content = code_of(content)
    return hashlib.sha256(content).hexdigest()


code_digest = KeptByContent(_code_digest, Path(__file__).read_text() + " ".join(sorted(TEXTS)))


def code_of(source: bytes) -> bytes:
    """Equal for two versions of a module that differ in comments, docstrings, layout and texts of errors alone."""
    tree = ast.parse(source)
    for text in _texts(tree):
        text.value = "text" if text.value else ""
    return ast.dump(tree).encode()


def _texts(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr):
                yield from _strings(first.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in TEXTS:
            for value in (*node.args, *(word.value for word in node.keywords if word.arg != "rule")):
                yield from _strings(value)
        elif (isinstance(node, ast.keyword) and _is_text(node.arg)) or (
            isinstance(node, ast.Assign) and any(_is_text(getattr(target, "id", None)) for target in node.targets)
        ):
            yield from _strings(node.value)


def _is_text(name: str | None) -> bool:
    return name is not None and (name == "problem" or name.lower().endswith("hint"))


def _strings(value: ast.expr) -> Iterator[ast.Constant]:
    """The texts of an expression: of an f-string without the values in it, of a choice all."""
    match value:
        case ast.Constant(value=str()):
            yield value
        case ast.JoinedStr(values=parts):
            for part in parts:
                yield from _strings(part)
        case ast.BinOp(left=left, right=right):
            yield from _strings(left)
            yield from _strings(right)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _strings(body)
            yield from _strings(orelse)
