"""Which files a test module is made of: its imports, the conftest.py above it, and what its strings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers_of import helpers_of, imports_of

FILES = {
    "tests/conftest.py": "",
    "tests/certificates.py": "import json",
    "tests/lab/conftest.py": "from tests.lab import fleet",
    "tests/lab/fleet.py": 'HERE = "stand_in_engine"',
    "tests/lab/stand_in_engine/server.c": "",
    "tests/lab/readers.py": "import tests.tools.made\nfrom tests.certificates import key",
    "tests/tools/made.py": 'names = ".", "..", "recorded.json"',
    "tests/tools/other.py": "",
    "tests/lab/other.py": "",
    "tests/lab/test_it.py": 'from tests.lab.readers import read\nnames = "unit", "recorded.json", "docs/lab.md", "src"',
    "tests/recorded.json": "{}",
    "tests/unit/test_other.py": "",
    "docs/lab.md": "",
    "src/rigup/run.py": "",
    "tests/unit/test_run.py": "from tests.unit.runs import made",
    "tests/unit/runs.py": "from rigup.kinds import every",
    "src/rigup/kinds/__init__.py": "from importlib import import_module",
    "src/rigup/kinds/full.py": "import rigup.layout",
    "src/rigup/layout.py": "import json",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_helpers_are_followed_and_levels_and_sources_are_not(checkout: Path) -> None:
    assert helpers_of(checkout / "tests/lab/test_it.py", checkout) == (
        "docs/lab.md",
        "tests/certificates.py",
        "tests/conftest.py",
        "tests/lab/conftest.py",
        "tests/lab/fleet.py",
        "tests/lab/readers.py",
        "tests/lab/stand_in_engine",
        "tests/lab/test_it.py",
        "tests/recorded.json",
        "tests/tools/made.py",
    )


def test_imports_are_followed_through_helpers_and_by_name(checkout: Path) -> None:
    assert imports_of(checkout / "tests/unit/test_run.py", checkout) == (
        "src/rigup/kinds/__init__.py",
        "src/rigup/kinds/full.py",
        "src/rigup/layout.py",
    )
