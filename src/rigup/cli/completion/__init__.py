"""`rigup completion`: completion scripts and the man page, from the parser that reads the command line."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import shtab

from rigup.cli.completion.man_page import man_page
from rigup.cli.main import build_parser
from rigup.cli.output.usage import Parser

SHELLS = ("bash", "zsh", "fish")
MAN = "man"

EPILOG = """\
examples:
  rigup completion bash > ~/.local/share/bash-completion/completions/rigup
  rigup completion zsh > ~/.zfunc/_rigup      with fpath+=(~/.zfunc) before compinit in ~/.zshrc
  rigup completion fish > ~/.config/fish/completions/rigup.fish
  rigup completion man > ~/.local/share/man/man1/rigup.1

Verbs, options and their choices are completed, and files where one is expected. Run it again after an upgrade.

exit codes: 0 printed, 2 usage error
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds WHAT."""
    parser.add_argument("what", choices=(*SHELLS, MAN), metavar="WHAT", help="bash, zsh, fish, or man for the man page")


def run(args: argparse.Namespace) -> int:
    """Prints the script or the page; contacts no host."""
    sys.stdout.write(script(build_parser(), args.what))
    return 0


def script(parser: Parser, what: str) -> str:
    """A completion script for a shell, or the man page."""
    if what == MAN:
        return man_page(parser)

    _prepare(parser, {"FILE": shtab.FILE, "INVENTORY": shtab.FILE, "DIR": shtab.DIRECTORY})
    return str(shtab.complete(parser, what)).rstrip("\n") + "\n"


def _prepare(parser: argparse.ArgumentParser, kinds: dict[str, Any]) -> None:
    """Marks the arguments that take files and folders, by their names in the help; makes all choices lists for shtab.

    shtab takes an argument whose choices are a dictionary for a group of verbs.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _prepare(inner, kinds)
            continue
        if action.choices is not None:
            action.choices = list(action.choices)
        if isinstance(action.metavar, str) and action.metavar in kinds:
            action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
