"""Reads a page as a browser's parser would, and finds elements in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from rigup.cli.page.markup import VOID


@dataclass
class Element:
    """One element. above: the tags that it stands within, outermost first."""

    tag: str
    attributes: dict[str, str]
    above: tuple[str, ...]
    children: list[Element] = field(default_factory=list)
    own: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text within, in no particular order between an element's own and its children's."""
        return " ".join([*self.own, *(child.text for child in self.children)]).strip()

    def all(self, tag: str) -> list[Element]:
        """Those of this tag within, in the order of the page."""
        found = [self] if self.tag == tag else []
        return found + [one for child in self.children for one in child.all(tag)]

    def of_class(self, name: str) -> list[Element]:
        """Those within that have this class."""
        found = [self] if name in self.attributes.get("class", "").split() else []
        return found + [one for child in self.children for one in child.of_class(name)]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {}, ())
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        made = Element(tag, {name: value or "" for name, value in attrs}, tuple(e.tag for e in self.open[1:]))
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].own.append(data)


def read(page: str) -> Element:
    """The page's root; fails where an element is closed that is not open, or is left open."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root], f"left open: {[element.tag for element in reader.open[1:]]}"
    return reader.root
