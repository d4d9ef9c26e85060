"""An animated SVG of what a terminal showed: one strip of screens behind a window, moved by CSS; no script, no font."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT, BASELINE, PADDING, BAR = 8.4, 18, 14, 14, 26
HOLD = 6.0
"""Pixels of a cell, from its top to the feet of its letters, around the screen, and of the title bar; seconds for which
the last screen stays."""

COLOURS = {
    "black": "#3b4252",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#d7dae0",
    "brightblack": "#7f848e",
}
STYLE = (
    "text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dae0;"
    "white-space:pre}}.b{{font-weight:bold}}#s{{animation:s {seconds:.2f}s step-end infinite}}"
    "@keyframes s{{{steps}}}@media(prefers-reduced-motion){{#s{{animation:none;transform:translateY({last}px)}}}}"
)


@dataclass(frozen=True)
class Words:
    """Cells of one line that look alike. colour: a name of COLOURS, six hexadecimal digits, or "default"."""

    column: int
    text: str
    colour: str = "default"
    bold: bool = False


Line = tuple[Words, ...]


@dataclass(frozen=True)
class Screen:
    """What the terminal showed from this second on."""

    seconds: float
    lines: tuple[Line, ...]


def animation(screens: Sequence[Screen], columns: int, rows: int, title: str) -> str:
    """The SVG. title: what a screen reader says of it. Lines that several screens have are written once."""
    width, height = columns * WIDTH + 2 * PADDING, rows * HEIGHT + 2 * PADDING + BAR
    strip = rows * HEIGHT
    names: dict[Line, str] = {}
    for screen in screens:
        for line in filter(None, screen.lines):
            names.setdefault(line, f"l{len(names)}")
    whole = screens[-1].seconds + HOLD
    steps = "".join(
        f"{screen.seconds / whole * 100:.3f}%{{transform:translateY({-number * strip}px)}}"
        for number, screen in enumerate(screens)
    )
    shown = "".join(
        f'<use href="#{names[line]}" y="{(number * rows + row) * HEIGHT + BASELINE}"/>'
        for number, screen in enumerate(screens)
        for row, line in enumerate(screen.lines)
        if line
    )
    style = STYLE.format(seconds=whole, steps=steps, last=-(len(screens) - 1) * strip)
    dots = "".join(
        f'<circle cx="{18 + 18 * number}" cy="16" r="5.5" fill="{colour}"/>'
        for number, colour in enumerate(("#e06c75", "#e5c07b", "#98c379"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(title, {chr(34): "&quot;"})}"><title>{escape(title)}</title><style>{style}</style>'
        f"<defs>{''.join(_line(line, name) for line, name in names.items())}</defs>"
        f'<rect width="100%" height="100%" rx="8" fill="#1e2127"/>{dots}'
        f'<svg x="{PADDING}" y="{PADDING + BAR}" width="{columns * WIDTH:g}" height="{strip}">'
        f'<g id="s">{shown}</g></svg></svg>\n'
    )


def _line(line: Line, name: str) -> str:
    return f'<g id="{name}">{"".join(map(_words, line))}</g>'


def _words(words: Words) -> str:
    colour = COLOURS.get(words.colour) or ("" if words.colour == "default" else f"#{words.colour}")
    given = (' class="b"' if words.bold else "") + (f' style="fill:{colour}"' if colour else "")
    # Every font gets the same width, so that columns stay columns.
    place = f'x="{words.column * WIDTH:g}" textLength="{len(words.text) * WIDTH:g}"'
    return f"<text {place}{given}>{escape(words.text)}</text>"
