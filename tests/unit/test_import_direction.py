"""Imports go one way and files form no circle, also under TYPE_CHECKING, inside functions, in roles/ and deploy/."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "rigup"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
LAYERS = (
    "nouns",
    "api",
    "attention",
    "programs",
    "quantisation",
    "catalogue",
    "planner",
    "systemd",
    "commands",
    "facts",
    "sources",
    "checkpoints",
    "monitoring",
    "gateway",
    "operations.primitives",
    "operations.apt",
    "operations.driver",
    "operations.builds",
    "operations.container",
    "operations.service",
    "operations.multinode",
    "operations.weights",
    "operations",
    "preflight",
    "project",
    "connection",
    "lockfile",
    "report",
    "roles",
    "run",
    "bench",
    "evaluation",
    "tuning",
    "lab",
    "deploy",
    "cli.output",
    "cli.page",
    "cli.sessions",
    "cli",
)
"""Lowest first; a package may import itself and those above it in this list."""


def module_name(path: Path) -> str:
    """The dotted name of a file, e.g. "rigup.planner.rules.host", "roles.site"; a package's is that of its folder."""
    parts = path.relative_to(ROOT / "src" if PACKAGE in path.parents else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for top in (PACKAGE, ROOT / "roles", ROOT / "deploy") for path in top.rglob("*.py")}


def layer_of(module: str) -> str:
    """The longest entry of LAYERS that the module lies in; a module at the top of the package is a noun."""
    name = module.removeprefix("rigup.")
    inside = [layer for layer in LAYERS if name == layer or name.startswith(f"{layer}.")]
    return max(inside, key=len) if inside else "nouns"


def imports(module: str) -> set[str]:
    """The project's modules that a module imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & FILES.keys() or {node.module}
    return (found & FILES.keys()) - {module, "rigup"}


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return {module: imports(module) for module in FILES}


def test_a_module_imports_only_what_lies_below(graph: dict[str, set[str]]) -> None:
    level = {module: LAYERS.index(layer_of(module)) for module in graph}
    above = {module: {name for name in names if level[name] > level[module]} for module, names in graph.items()}
    assert {module: names for module, names in above.items() if names and module != "rigup.__main__"} == {}


def test_files_form_no_circle(graph: dict[str, set[str]]) -> None:
    """Removes files that import nothing that is left, until only circles and what imports them stay."""
    left = {module: {name for name in names if FILES[name].name != "__init__.py"} for module, names in graph.items()}
    while ready := {module for module, names in left.items() if not names & left.keys()}:
        left = {module: names for module, names in left.items() if module not in ready}
    assert sorted(left) == []


def test_every_package_has_a_layer_and_says_what_it_is() -> None:
    packages = [path for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE]
    assert {path.parent.relative_to(PACKAGE).parts[0] for path in packages} <= {name.split(".")[0] for name in LAYERS}
    assert [str(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_the_direction_is_drawn() -> None:
    drawn = ARCHITECTURE.split("```imports\n")[1].split("```")[0].splitlines()
    assert [line.split()[0] for line in drawn] == list(LAYERS)
