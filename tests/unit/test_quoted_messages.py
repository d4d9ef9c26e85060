"""A message is quoted in one place of the tests, so that a reworded one breaks one table.

A place is a table, a function or a class of a test module. `python -m tests.unit.test_quoted_messages` lists what is
quoted in several.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kept_by_content import KeptByContent

ROOT = Path(__file__).parents[2]
WORDS = 4
"""So many in a row, of one literal, are a quotation."""
# The words of docs/memory.md, and what a documented command asks.
NOT_QUOTING = {
    "tests/documented_commands.py",
    "tests/lab/test_documented_commands.py",
    "tests/unit/planner/memory/test_fit_measured_rows.py",
}
_ROW = re.compile(r"[A-Za-z][A-Za-z'-]*(?:,? [A-Za-z][A-Za-z'-]*){" + str(WORDS - 1) + ",}")
_OF_PROGRAMS = re.compile(r"[\n|\\;]")
"""Scripts, configuration and patterns."""


class Literal(NamedTuple):
    """A text of a module, and where what it stands in begins: a table, a function or a class.

    rows: every WORDS words of prose that follow one another, apart by spaces.
    """

    path: str
    place: int
    line: int
    text: str
    rows: frozenset[str]


def literals(path: Path) -> Iterator[Literal]:
    """Every text of a module that has rows, but docstrings and what an assertion says when it fails."""
    for place, line, text, found in prose_in(path.read_bytes()):
        yield Literal(str(path.relative_to(ROOT)), place, line, text, frozenset(found))


def _prose_in(source: bytes) -> list[tuple[int, int, str, list[str]]]:
    tree = ast.parse(source)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.msg:
            left_out |= {id(part) for part in ast.walk(node.msg)}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
    return [
        (top.lineno, node.lineno, node.value, sorted(found))
        for top in tree.body
        for node in ast.walk(top)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out
        if (found := rows(node.value))
    ]


prose_in = KeptByContent(_prose_in, Path(__file__).read_text())


def rows(text: str) -> set[str]:
    """Every WORDS words of prose that follow one another."""
    found = set()
    for row in _ROW.finditer(text):
        words = re.findall(r"[A-Za-z'-]+", row.group().lower())
        found |= {" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)}
    return found


def quotations() -> dict[Literal, list[Literal]]:
    """The literals of the tests that quote each message of the toolkit.

    A literal quotes the message that it has most rows in common with; of several the one whose module has its path.
    """
    messages: dict[str, set[Literal]] = defaultdict(set)
    for folder in ("src", "roles"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for literal in literals(path):
                for row in () if _OF_PROGRAMS.search(literal.text) else literal.rows:
                    messages[row].add(literal)
    found: dict[Literal, list[Literal]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for quoting in literals(path) if str(path.relative_to(ROOT)) not in NOT_QUOTING else ():
            common: dict[Literal, int] = defaultdict(int)
            for row in quoting.rows:
                for message in messages.get(row, ()):
                    common[message] += 1
            # a few words that a long message has, too, are nobody's quotation
            common = {message: number for message, number in common.items() if 2 * number >= len(message.rows)}
            if common:
                found[
                    max(sorted(common, key=_place), key=lambda message: (common[message], _nearness(message, quoting)))
                ].append(quoting)
    prose_in.save()
    return found


def _place(literal: Literal) -> tuple[str, int, int, str]:
    return literal[:4]


def _nearness(message: Literal, quoting: Literal) -> int:
    module = message.path.removeprefix("src/rigup/").removesuffix(".py").split("/")
    test = quoting.path.removeprefix("tests/unit/").removesuffix(".py").split("/")
    return sum(one == other or other.startswith(f"test_{one}") for one, other in zip(module, test, strict=False))


def quoted_in_several_places() -> list[str]:
    """Each such message, with the places."""
    return [
        f"{message.path}:{message.line}: {message.text.strip()!r} is quoted in "
        + ", ".join(sorted({f"{one.path}:{one.line}" for one in quoting}))
        for message, quoting in sorted(quotations().items(), key=lambda found: _place(found[0]))
        if len({(one.path, one.place) for one in quoting}) > 1
    ]


def test_a_message_is_quoted_in_one_place() -> None:
    assert quoted_in_several_places() == []


if __name__ == "__main__":
    print(*quoted_in_several_places(), sep="\n")
