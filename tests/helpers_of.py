"""What a test module is made of: the helpers that it imports, the conftest.py above it, and the files they name.

And the modules of rigup that it comes to import, itself, by its helpers, and by one another.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tests.kept_by_content import KeptByContent

PACKAGES = ("tests", "benchmarks")
RIGUP, BY_NAME = "rigup", "importlib"
# Of the checkout's own folders those that no subject has.
FOLDERS = ("benchmarks/", "bin/", "deploy/", "docs/", "docs-site/")
_PATH = re.compile(r"\w[\w.-]*(/[\w.-]+)*")


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


@lru_cache(maxsize=256)
def imports_of(module: Path, root: Path) -> tuple[str, ...]:
    """The modules of rigup, by path below `root`; of one that imports by name, all below its folder."""
    waiting, found = [module], set[Path]()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported_by(path, root)
    return tuple(sorted(str(path.relative_to(root)) for path in found if root / "src" in path.parents))


@lru_cache(maxsize=1024)
def _imported_by(path: Path, root: Path) -> tuple[Path, ...]:
    source, found = root / "src", set[Path]()
    imported, _ = named_in(path.read_bytes())
    for name in imported:
        words = name.split(".")
        if words[0] == BY_NAME:
            found |= set(path.parent.rglob("*.py")) if source in path.parents else set()
        else:
            top = source if words[0] == RIGUP else root
            places = [top.joinpath(*words[:count]) for count in range(1, len(words) + 1)]
            found |= {place / "__init__.py" for place in places} | {places[-1].with_suffix(".py")}
    return tuple(sorted(file for file in found if file.is_file()))


@lru_cache(maxsize=1024)
def _named_by(path: Path, root: Path) -> tuple[Path, ...]:
    """The helpers that a module imports, and the files and folders that its strings name."""
    imported, strings = named_in(path.read_bytes())
    modules = (root / f"{name.replace('.', '/')}.py" for name in imported)
    return tuple(dict.fromkeys([*(module for module in modules if module.is_file()), *_paths(strings, path, root)]))


def _named_in(source: bytes) -> tuple[list[str], list[str]]:
    """The modules of PACKAGES and of rigup that a source imports, importlib, and its strings that may be paths."""
    imported, strings = dict[str, None](), dict[str, None]()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _PATH.fullmatch(node.value):
            strings[node.value] = None
        imported |= dict.fromkeys(name for name in names if name.split(".")[0] in (*PACKAGES, RIGUP, BY_NAME))
    return list(imported), list(strings)


named_in = KeptByContent(_named_in, Path(__file__).read_text())


def _paths(strings: list[str], path: Path, root: Path) -> Iterator[Path]:
    """Beside the module, below tests/, and in FOLDERS; a folder with tests in it is a level."""
    for string in strings:
        for folder in (path.parent, root / "tests", *([root] if string.startswith(FOLDERS) else [])):
            there = folder / string
            if there.is_file() or (there.is_dir() and next(there.rglob("test_*.py"), None) is None):
                yield there
                break
