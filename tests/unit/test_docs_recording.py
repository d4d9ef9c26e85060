"""The recording of `rigup up`: how screens become an animated SVG, and what the picture in the docs has and has not."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs/pictures/up.svg"
MOST_BYTES = 150_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def terminal() -> ModuleType:
    """docs-site/terminal_svg.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("terminal_svg", ROOT / "docs-site/terminal_svg.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["terminal_svg"] = module
    spec.loader.exec_module(module)
    return module


def test_each_screen_is_shown_from_its_second_on_and_the_last_one_stays(terminal: ModuleType) -> None:
    line = (terminal.Words(0, "a <b> & c", "green", True),)
    other = (terminal.Words(2, "done", "ff8700"),)
    screens = [terminal.Screen(0.0, (line, ())), terminal.Screen(2.0, (line, other))]
    text = terminal.animation(screens, 20, 2, 'what "it" is')
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'what "it" is'
    written = {found.text: found for found in root.iter(f"{SVG}text")}
    assert written.keys() == {"a <b> & c", "done"}
    assert (written["a <b> & c"].get("class"), written["a <b> & c"].get("style")) == ("b", "fill:#98c379")
    assert (written["done"].get("x"), written["done"].get("style")) == ("16.8", "fill:#ff8700")
    names = [group.get("id") for group in root.iter(f"{SVG}g") if group.get("id") != "s"]
    used = [(use.get("href"), use.get("y")) for use in root.iter(f"{SVG}use")]
    assert used == [(f"#{names[0]}", "14"), (f"#{names[0]}", "50"), (f"#{names[1]}", "68")]
    assert "animation:s 8.00s step-end infinite" in text
    assert "0.000%{transform:translateY(0px)}25.000%{transform:translateY(-36px)}" in text
    assert "prefers-reduced-motion){#s{animation:none;transform:translateY(-36px)}}" in text


def test_the_picture_is_whole_small_and_of_nobodys_machine() -> None:
    content = PICTURE.read_text()
    assert len(content.encode()) < MOST_BYTES
    said = " ".join(found.text or "" for found in ElementTree.fromstring(content).iter(f"{SVG}text"))
    for words in (
        "rigup up ops@box1.lan",
        "Make these changes? [y/N]",
        "The capital of France is Paris.",
        "go on with",
    ):
        assert words in said, words
    assert re.findall(r"/(?:root|home|work|tmp)\b|film|127\.77|10\.77|pypi|simple/", said) == []
    assert "<script" not in content and re.findall(r'href="(?!#)', content) == []


def test_the_picture_is_shown_first() -> None:
    assert "(docs/pictures/up.svg)" in (ROOT / "README.md").read_text().partition("## ")[0]
    assert "(pictures/up.svg)" in (ROOT / "docs/up.md").read_text()
