"""Planning is pure: what decides imports nothing that reaches a host, a terminal or a network."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "rigup"
PURE = (
    "planner",
    "catalogue",
    "commands",
    "systemd",
    "monitoring",
    "gateway",
    "lock",
    "plan",
    "plain_values",
    "rig",
    "service",
    "units",
    "errors",
    "printable",
)
# Not even by way of something else: loading these is slow, and they act.
LIBRARIES = ("pyinfra", "rich", "requests", "paramiko", "gevent")
ACTING = {*LIBRARIES, "subprocess", "socket", "urllib", "http", "shutil", "os"}


@pytest.mark.parametrize("module", (*PURE, "cli.output.plan_json"))
def test_loads_no_library_that_acts(module: str) -> None:
    program = f"import sys, rigup.{module}; print(*(m for m in {LIBRARIES!r} if m in sys.modules))"
    # -I keeps what the environment asks for out of the answer; the path is handed over instead.
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize("module", PURE)
def test_imports_nothing_that_acts(module: str) -> None:
    files = sorted((SOURCE / module).rglob("*.py")) or [SOURCE / f"{module}.py"]
    found = {(path.name, name) for path in files for name in imported(path) if name in ACTING}
    assert found == set()


def imported(path: Path) -> set[str]:
    """The top-level names that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names
