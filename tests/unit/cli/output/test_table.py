"""Tables that fit: which columns go, what is shortened, and what strange text does to the widths."""

from __future__ import annotations

import io

import pytest
from rich.text import Text

from rigup.cli.output.console import Console
from rigup.cli.output.table import Column, Table
from tests.terminal import Terminal, describe, plain

COLUMNS = (
    Column("name", narrowest=6),
    Column("least", rank=2),
    Column("less", rank=1, narrowest=4, middle=True),
    Column("none", rank=3, optional=True),
    Column("size", right=True),
)


def drawn(monkeypatch: pytest.MonkeyPatch, width: int, *rows: tuple[str | Text | None, ...]) -> list[str]:
    describe(monkeypatch, width or 10)
    table = Table(COLUMNS)
    for row in rows:
        table.add(*row)
    file = Terminal() if width else io.StringIO()
    Console(file=file).print(table, soft_wrap=True)
    return plain(file.getvalue()).splitlines()


ROW = ("somebody", "whatever", "from here to there", "", "12")


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (0, ["name      least     less                size", "somebody  whatever  from here to there    12"]),
        (44, ["name      least     less                size", "somebody  whatever  from here to there    12"]),
        (41, ["name     least    less               size", "somebody whatever from here to there   12"]),
        (36, ["name      least     less        size", "somebody  whatever  from …here    12"]),
        (24, ["name      less      size", "somebody  from…ere    12", "not shown in 24 columns:", "least"]),
        (12, ["name    size", "someb…    12", "not shown in", "12 columns:", "least, less"]),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_columns_go_by_rank(monkeypatch: pytest.MonkeyPatch, width: int, lines: list[str]) -> None:
    found = drawn(monkeypatch, width, ROW)
    assert found == lines


def test_what_hosts_say_keeps_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    heading, row = drawn(monkeypatch, 80, ("a\nb\x1b[2J", "\u202ec", "日本", None, "1"))
    assert row.split() == ["a", "b", "c", "日本", "1"]
    assert len(row) + len("日本") == len(heading)
