"""What a test module is made of: the helpers that it imports, the conftest.py above it, and the files they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

PACKAGES = ("tests", "benchmarks")
# Of the checkout's own folders those that no subject has.
FOLDERS = ("benchmarks/", "bin/", "deploy/", "docs/", "docs-site/")
_PATH = re.compile(r"[\w.-]+(/[\w.-]+)*")


@lru_cache(maxsize=256)
def helpers_of(module: Path, root: Path) -> tuple[str, ...]:
    """The files and folders, by path below `root`, the module itself among them; sorted."""
    tests = root / "tests"
    above = [folder for folder in module.parents if folder == tests or tests in folder.parents]
    waiting = [module, *(folder / "conftest.py" for folder in above if (folder / "conftest.py").is_file())]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [other for other in _named_by(path, root) if other.suffix == ".py" and other.is_file()]
            found |= {other for other in _named_by(path, root) if other.suffix != ".py" or other.is_dir()}
    return tuple(sorted(str(path.relative_to(root)) for path in found))


@lru_cache(maxsize=1024)
def _named_by(path: Path, root: Path) -> tuple[Path, ...]:
    """The helpers that a module imports, and the files and folders that its strings name."""
    tree = ast.parse(path.read_text())
    return tuple(dict.fromkeys([*_imports(tree, root), *_paths(tree, path, root)]))


def _imports(tree: ast.AST, root: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.split(".")[0] in PACKAGES and (path := root / f"{name.replace('.', '/')}.py").is_file():
                yield path


def _paths(tree: ast.AST, path: Path, root: Path) -> Iterator[Path]:
    """Beside the module, below tests/, and in FOLDERS; a folder with tests in it is a level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PATH.fullmatch(node.value):
            for folder in (path.parent, root / "tests", *([root] if node.value.startswith(FOLDERS) else [])):
                there = folder / node.value
                if there.is_file() or (there.is_dir() and next(there.rglob("test_*.py"), None) is None):
                    yield there
                    break
