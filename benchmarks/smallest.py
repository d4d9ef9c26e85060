"""The smallest form of a measurement: each thing that it does, once, for a test that sees that it still works.

Its figures say nothing, and limits to them do not count. `--smallest` is one option of every benchmark that rigup's own
Python runs; what is typed beside it counts more.
"""

from __future__ import annotations

import argparse
import shlex
import sys


def arguments(parser: argparse.ArgumentParser, words: str = "") -> argparse.Namespace:
    """What was typed. words: what `--smallest` stands for; `smallest` is whether it was typed."""
    said = f"do each thing once, as a test does: {words}" if words else "do each thing once, as a test does"
    parser.add_argument("--smallest", action="store_true", help=said)
    typed = sys.argv[1:]
    found = parser.parse_args(typed)
    return parser.parse_args([*shlex.split(words), *typed]) if found.smallest else found
