"""A rich console for untrusted text: only rich's own escape sequences reach the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from rigup.cli.output.printable_streams import PrintableStream
from rigup.printable import printable

if TYPE_CHECKING:
    from rigup.plan import Finding


class Console(rich.console.Console):
    """A rich Console that makes every text printable: plain text, markup, table cells, bars; `:key:` stays as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    @property
    def file(self) -> IO[str]:
        """The stream below PrintableStream, which would also remove rich's own sequences."""
        file = super().file
        return file.stream if isinstance(file, PrintableStream) else file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def say(self, *parts: str | tuple[str, str], end: str = "\n") -> None:
        """See Lines in lines.py."""
        self.print(Text.assemble(*parts), end=end, soft_wrap=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders like rich, with every text printable and without links."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
                continue
            style = segment.style.update_link(None) if segment.style and segment.style.link else segment.style
            yield Segment(printable(segment.text), style)


def show_indented(text: Text, indent: int, console: rich.console.Console) -> None:
    """Prints text after `indent` spaces; in a terminal it goes on between words, two more spaces in; else whole."""
    width = max(console.width - indent - 2, 20) if console.file.isatty() else max(text.cell_len, 1)
    for number, line in enumerate(text.wrap(console, width)):
        line.rstrip()
        console.print(Text(" " * (indent + (2 if number else 0))).append_text(line), soft_wrap=True)


def show_findings(kind: str, findings: Iterable[Finding], console: rich.console.Console) -> None:
    """Prints findings with their rules and hints. kind: "refused" or "warning"."""
    style = "red" if kind == "refused" else "yellow"
    for finding in findings:
        text = Text.assemble((f"{kind}: ", style), finding.message, (f" [{finding.rule}]", "dim"))
        show_indented(text, 2, console)
        if finding.hint:
            show_indented(Text(f"hint: {finding.hint}"), 4, console)
