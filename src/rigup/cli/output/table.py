"""Tables that fit a terminal: the least important columns go first, then the widest cells are shortened.

Where standard output is not a terminal (a pipe, a file), every column is there and whole, and nothing is coloured.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from rigup.printable import one_line

GAP = 2
NARROW_GAP = 1


@dataclass(frozen=True)
class Column:
    """A column of a table; without a rank it always stays.

    rank: the columns with the highest rank are dropped first; 0 stays. narrowest: a cell may be shortened to so many
    characters; None: never. middle: it is shortened in its middle, since its end says something too. own_line: a
    cell that is too wide gets a line of its own instead. optional: drop it if all its cells are empty.
    """

    head: str
    rank: int = 0
    narrowest: int | None = None
    right: bool = False
    middle: bool = False
    own_line: bool = False
    optional: bool = False

    def least(self, natural: int) -> int:
        """Its smallest width, if its widest cell has `natural` characters."""
        return natural if self.narrowest is None else min(natural, max(self.narrowest, cell_len(self.head)))


class Table:
    """Rows of cells below heads, as rich shows them: print it with `soft_wrap=True`."""

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns = tuple(columns)
        self._rows: list[tuple[tuple[Text, ...], str]] = []

    def add(self, *cells: str | Text | None, style: str = "") -> None:
        """Adds a row with a cell for each column; "" and None are shown as "-"."""
        row = tuple(cell if isinstance(cell, Text) else Text(one_line(cell or "")) for cell in cells)
        assert len(row) == len(self._columns), f"{len(row)} cells for {len(self._columns)} columns"
        self._rows.append((row, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        """Its lines: as wide as the terminal, or whole if there is none."""
        columns = [
            number
            for number, column in enumerate(self._columns)
            if not column.optional or any(row[number] for row, _ in self._rows)
        ]
        natural = {number: self._natural(number) for number in columns}
        width = options.max_width if console.file.isatty() else None
        widths, gap = _fitted(self._columns, natural, width)
        mark = "..." if options.ascii_only else "\N{HORIZONTAL ELLIPSIS}"
        yield self._line(tuple(Text(column.head) for column in self._columns), widths, gap, mark, "bold")
        for row, style in self._rows:
            for number in widths:
                if self._columns[number].own_line and row[number].cell_len > widths[number]:
                    yield _one_line(row[number])
                    row = (*row[:number], Text(" "), *row[number + 1 :])
            yield self._line(row, widths, gap, mark, style)
        if hidden := [self._columns[number].head for number in columns if number not in widths]:
            told = f"not shown in {width} columns: {', '.join(hidden)}"
            yield Text("\n".join(textwrap.wrap(told, options.max_width)), "dim")

    def _natural(self, number: int) -> int:
        cells = (row[number].cell_len for row, _ in self._rows)
        return max(cell_len(self._columns[number].head), *cells, 1)

    def _line(self, row: Sequence[Text], widths: dict[int, int], gap: int, mark: str, style: str) -> Text:
        line = Text(style=style)
        for place, (number, width) in enumerate(widths.items()):
            column = self._columns[number]
            cell = _shortened(row[number] or Text("-"), width, mark, column.middle)
            space = " " * (width - cell.cell_len)
            line.append(" " * (gap if place else 0) + (space if column.right else "")).append_text(cell)
            line.append("" if column.right else space)
        line.rstrip()
        return _one_line(line)


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _fitted(columns: Sequence[Column], natural: dict[int, int], width: int | None) -> tuple[dict[int, int], int]:
    """The widths of the columns that are shown, by number, and the gap between them."""
    if width is None:
        return natural, GAP
    kept = dict(natural)
    while True:
        least = {number: columns[number].least(kept[number]) for number in kept}
        for widths, gap in product((kept, least), (GAP, NARROW_GAP)):
            room = width - gap * (len(kept) - 1)
            if sum(widths.values()) <= room:
                return _shared_out(kept, least, room), gap
        droppable = [number for number in kept if columns[number].rank]
        if not droppable:
            return least, NARROW_GAP
        del kept[max(droppable, key=lambda number: columns[number].rank)]


def _shared_out(natural: dict[int, int], least: dict[int, int], width: int) -> dict[int, int]:
    """Widths of at most `width` together: each column gives of what it has above its least, the widest first."""
    widths = dict(natural)
    while sum(widths.values()) > width:
        number = max((n for n in widths if widths[n] > least[n]), key=lambda n: widths[n])
        widths[number] -= 1
    return widths


def _shortened(cell: Text, width: int, mark: str, middle: bool) -> Text:
    """The cell in at most `width` characters, with a mark where some are missing."""
    if cell.cell_len <= width:
        return cell.copy()
    room = max(width - len(mark), 1)
    end = room // 2 if middle else 0
    start = cell.copy()
    start.truncate(room - end)
    found = start.append(mark)
    return found.append_text(cell[len(cell) - end :]) if end else found
