"""Lines are the same text with and without rich, which only a terminal needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pydantic_core import from_json

from rigup.cli.output.console import Console
from rigup.cli.output.lines import PlainLines, json_text, lines
from rigup.cli.output.printable_streams import printable_streams
from tests.hostile import HOSTILE

LONG = " ".join(["word"] * 100)
PARTS = (
    (("gpu1", "bold"), ": 3 to change"),
    ("  ", ("[red]x[/] \\[bold] :warning:", "yellow"), " 8 of 9"),
    ("\n", (LONG, "red")),
    ("a\x1b[31mb\x07\u202ec",),
    ("",),
)


@pytest.mark.parametrize("parts", PARTS)
def test_the_text_is_that_of_a_console(
    parts: tuple[str | tuple[str, str], ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with printable_streams():
        PlainLines().say(*parts)
        plain = capsys.readouterr().out
        Console().say(*parts)
    assert capsys.readouterr().out == plain


def test_standard_error_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    lines(stderr=True).say("gpu1", end=" ")
    assert capsys.readouterr() == ("", "gpu1 ")


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_styles_where_rich_is_told_to_use_them(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    assert isinstance(lines(), Console)


def test_lines_that_no_terminal_shows_load_no_rich() -> None:
    program = "import sys; from rigup.cli.output.lines import lines; lines().say('a'); print('rich' in sys.modules)"
    surroundings = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=surroundings)
    assert done.stdout == "a\nFalse\n"


@pytest.mark.parametrize("text", ["\ud800 half \udfff", "M\udcfcll", "\\ud800", "größer 😀", HOSTILE])
def test_strict_readers_take_documents(text: str) -> None:
    printed = json_text({"schema": 1, text: [text, 0.1, None]}, indent=1)
    assert printed.isascii()
    whole = "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= each <= "\udfff" else each for each in text)
    assert from_json(printed) == {"schema": 1, whole: [whole, 0.1, None]}
