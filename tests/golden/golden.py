"""Comparing rendered text with a file. `UPDATE_GOLDEN=1 pytest tests/golden tests/unit` writes the files again."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent


def assert_golden(name: str, text: str) -> None:
    """The text must be what tests/golden/<name> holds, to the last character."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path} is missing: run with UPDATE_GOLDEN=1 and read what it wrote"
    assert text == path.read_text(), f"differs from {path}: if that is meant, run with UPDATE_GOLDEN=1"
