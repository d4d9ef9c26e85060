"""The page's colours: defined once, for light and for dark, and with enough contrast wherever they are used."""

from __future__ import annotations

import re

import pytest

from rigup.cli.page.document import style_sheet

TEXT = ("ink", "muted", "link", "good", "warn", "bad", "one", "two", "three")
SHAPES = ("weights", "kv", "overhead", "measured", "before")
GROUNDS = ("ground", "raised")
BESIDE = (("weights", "kv"), ("kv", "overhead"))


def palette(dark: bool) -> dict[str, str]:
    """The variables of a scheme, by name."""
    light_part, _, dark_part = style_sheet().partition("@media screen and (prefers-color-scheme: dark)")
    part = dark_part.partition("\n}\n")[0] if dark else light_part
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part))


def luminance(colour: str) -> float:
    """As WCAG 2.2 defines it."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_the_standard_has_it() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_legible_on_every_ground(dark: bool, ground: str) -> None:
    colours = palette(dark)
    too_faint = {name: contrast(colours[name], colours[ground]) for name in TEXT}
    assert {name: found for name, found in too_faint.items() if found < 4.5} == {}


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_shapes_stand_out_from_every_ground(dark: bool, ground: str) -> None:
    colours = palette(dark)
    found = {name: contrast(colours[name], colours[ground]) for name in SHAPES}
    assert {name: value for name, value in found.items() if value < 3} == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_a_bar_has_in_use_stands_out_from_what_is_free(dark: bool) -> None:
    colours = palette(dark)
    assert all(contrast(colours[name], colours["free"]) >= 3 for name in ("weights", "kv", "overhead"))


def test_both_schemes_have_the_same_colours_and_no_rule_has_one_of_its_own() -> None:
    assert palette(False).keys() == palette(True).keys()
    assert {*TEXT, *SHAPES, *GROUNDS, "line", "free"} == palette(False).keys()
    used = set(re.findall(r"var\(--([\w-]+)\)", style_sheet()))
    assert used == palette(False).keys()
    rules = style_sheet().split("* { box-sizing")[1]
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsl", rules) == []
