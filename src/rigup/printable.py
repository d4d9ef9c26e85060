"""Makes outside text safe to show: removes terminal controls, hidden text and changes of text order. Pure.

A host, a hub, an SSH banner, a log: each can hold escape sequences that move the cursor, set a window's title or
fill the clipboard, and format characters that show a line in another order than it has. `printable` is the one place
that removes them; the command line's streams, console, pages and reports all use it.
"""

from __future__ import annotations

import re

# whole sequences of ECMA-48, so that coloured text stays readable: CSI, then OSC, DCS and the like with their strings
_SEQUENCE = re.compile(
    "\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"
    "|\\][^\x07\x1b\n]*(?:\x07|\x1b\\\\)"
    "|[PX^_][^\x1b\n]*\x1b\\\\"
    "|[ -/]+[0-~])"
)
# C0 but tab and line feed, DEL and C1; invisible and reordering format characters; line and paragraph separators; tags.
# The joiners of scripts and of emoji stay: they neither hide nor move anything.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# characters that no encoding can write
_SURROGATES = re.compile("[\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """The text without control characters; line feeds and tabs stay. Takes time linear in its length."""
    if text.isascii() and text.isprintable():
        return text
    if "\x1b" in text:
        text = _SEQUENCE.sub("", text)
    text = _CONTROLS.sub("", text.replace("\r\n", "\n"))
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """The same on one line: each run of white space becomes one space."""
    return " ".join(printable(text.replace("\r", " ")).split())
