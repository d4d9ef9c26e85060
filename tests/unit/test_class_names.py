"""No class name stands for two things, so that a search finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_class_name_stands_for_one_thing() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for top in ("src/rigup", "roles", "deploy"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    defined[node.name].append(str(path.relative_to(ROOT)))

    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}
