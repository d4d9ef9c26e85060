"""mypy reads what tests are made of: it takes the test modules that others import from by name, and these are all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTED = re.compile(r"^\s*(?:from|import) (tests\.[\w.]*\btest_\w+)", re.MULTILINE)


def test_every_test_that_others_import_from_is_read() -> None:
    files = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    sources = [path.read_text() for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    imported = {name.replace(".", "/") + ".py" for text in sources for name in IMPORTED.findall(text)}
    assert [name for name in files if "/test_" in name] == sorted(imported)
