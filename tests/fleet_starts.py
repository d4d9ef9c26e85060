"""Where a fleet says that rigup is started in its folder, to what wants to know (tests/unchanged.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

listeners: list[Callable[[Path], None]] = []


def tell(root: Path) -> None:
    """rigup is about to start in this folder."""
    for listener in listeners:
        listener(root)
