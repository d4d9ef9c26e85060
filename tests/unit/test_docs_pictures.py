"""The pictures of the page: each is shown in the docs, each that is shown is there, and none is large."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_BYTES = 300_000


def test_pictures_are_shown_and_small() -> None:
    shown = set(re.findall(r"!\[[^\]]{10,}\]\(pictures/([\w-]+\.png)\)", (ROOT / "docs/status-page.md").read_text()))
    there = {path.name: path.read_bytes() for path in (ROOT / "docs/pictures").glob("*.png")}
    assert shown == there.keys()
    assert {name for name, content in there.items() if len(content) >= MOST_BYTES} == set()
    assert all(content.startswith(b"\x89PNG") for content in there.values())
    assert "(docs/pictures/service.png)" in (ROOT / "README.md").read_text()
