"""`rigup exec`: the command line, and lines of one host and of several."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.cli.main import build_parser
from rigup.cli.service import exec as verb
from tests.command_line import CommandLine


@pytest.mark.parametrize("words", [(), ("--",), ("--limit", "a")])
def test_a_command_is_needed(words: tuple[str, ...], tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(["a"])
    done = rigup.call("exec", *words)
    assert (done.code, done.err) == (
        2,
        "rigup: exec: COMMAND: missing\nhint: write it after the options: rigup exec -- uptime\n",
    )


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["exec", "nvidia-smi", "-L", "--json"], ["nvidia-smi", "-L", "--json"]),
        (["exec", "--root", "--limit", "a", "--", "df", "-h"], ["--", "df", "-h"]),
    ],
    ids=["plain", "separated"],
)
def test_options_of_the_command_are_its_own(words: list[str], command: list[str]) -> None:
    args = build_parser("exec").parse_args(words)
    assert (args.command, args.json) == (command, False)


def test_lines_have_their_host_in_front_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    one, several = verb._printer(["a"]), verb._printer(["a", "longer"])
    one("a", "x\x1b[2J\r", False)
    several("a", "y", False)
    several("longer", "z", True)
    said = capsys.readouterr()
    assert said.out.splitlines() == ["x[2J", "a      y"] or "\x1b" not in said.out
    assert said.err == "longer z\n"
