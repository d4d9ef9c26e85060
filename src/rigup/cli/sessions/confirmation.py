"""Asks the user whether to go on."""

from __future__ import annotations

import argparse
import select
import sys

from rigup.cli.output.lines import Lines
from rigup.errors import InputError

POLL_SECONDS = 0.2


def add_yes(parser: argparse.ArgumentParser, does: str) -> None:
    """Adds --yes. does: what is done without confirmation, for help."""
    parser.add_argument("--yes", "-y", action="store_true", help=f"{does} without confirmation")


def agreed(args: argparse.Namespace, out: Lines, question: str, verb: str = "") -> bool:
    """Whether the user wants it, by --yes or when asked. Raises InputError if nobody can be asked.

    verb: its whole name, if it has more than one word.
    """
    if args.yes:
        return True
    check_terminal(verb or args.verb)
    return says_yes(out, question)


def check_terminal(verb: str) -> None:
    """Raises InputError if nobody can be asked."""
    if not sys.stdin.isatty():
        raise InputError(f"{verb} needs confirmation, but standard input is not a terminal", "pass --yes")


def says_yes(out: Lines, question: str) -> bool:
    """Asks on any standard input. Raises Cancelled on Ctrl-C."""
    from rigup.operations.primitives import jobs  # rigup apply connects to hosts before it imports this

    out.say(f"{question} [y/N] ", end="")
    while not select.select([sys.stdin], [], [], POLL_SECONDS)[0]:  # unlike input(), leases are renewed meanwhile
        if jobs.cancelled():
            raise jobs.Cancelled("cancelled; nothing was changed")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
