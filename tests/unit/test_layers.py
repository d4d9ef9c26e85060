"""Imports go one way: each layer knows those below it, and none above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "rigup"
NOUNS = {"errors", "units", "rig", "service", "environment", "lock", "plan", "node", "layout", "cache", "toolkit"}
LAYERS = ["nouns", "catalogue", "planner", "render", "programs", "facts", "operations", "verify", "lab", "fleet", "cli"]


def layer_of(module: str) -> str:
    """The layer of a module by its path below the package, e.g. "planner.memory"."""
    first = module.split(".")[0]
    return "nouns" if first in NOUNS else first


def imports(path: Path) -> set[str]:
    """The modules of rigup that a file imports, also inside functions, without the package's own name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module] if node.module != "rigup" else [f"rigup.{alias.name}" for alias in node.names]
        found |= {name.removeprefix("rigup.") for name in names if name.startswith("rigup.") and "__" not in name}
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in NOUNS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_lies_below(path: Path) -> None:
    own = layer_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
    above = [name for name in imports(path) if LAYERS.index(layer_of(name)) > LAYERS.index(own)]
    assert above == []


def test_every_folder_is_a_layer() -> None:
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} == set(LAYERS) - {"nouns"}
