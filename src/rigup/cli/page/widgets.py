"""Small building blocks of the page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rigup.cli.page.content import STATES, DriftItem, Error, State
from rigup.cli.page.markup import Child, Markup, element


def badge(state: State) -> Markup:
    """A state as a sign, a word and a colour: each of them is sufficient."""
    words, kind, sign = STATES[state]
    return tag(words, kind, sign)


def tag(words: str, kind: str, sign: str) -> Markup:
    """A highlighted word. kind: "good", "warn", "bad" or "plain"."""
    return element("span", element("span", sign, aria_hidden="true", class_="sign"), words, class_=f"tag {kind}")


def table(heads: Sequence[str], rows: Iterable[Sequence[Child]], caption: str) -> Markup:
    """A table. The first cell of a row is its heading. caption: for screen readers only."""
    lines = [
        element("tr", element("th", first, scope="row"), [element("td", cell) for cell in rest])
        for first, *rest in rows
    ]
    return table_of([(text, "") for text in heads], lines, caption)


def table_of(heads: Iterable[tuple[str, str]], lines: Child, caption: str, class_: str | None = None) -> Markup:
    """A table of finished lines. heads: each with its class, "" for none."""
    head = element("tr", [element("th", text, scope="col", class_=look or None) for text, look in heads])
    parts = element("caption", caption, class_="aside"), element("thead", head), element("tbody", lines)
    return scrolled(element("table", parts, class_=class_), caption)


def scrolled(content: Child, name: str) -> Markup:
    """Content that may be wider than its container; the keyboard can scroll it."""
    return element("div", content, class_="scroll", tabindex=0, role="group", aria_label=name)


def figure(name: str, about: str, drawing: Child, behind: Child) -> Markup:
    """A chart with a caption; its figures are folded below."""
    caption = element("figcaption", element("strong", name), " ", element("span", about))
    folded = element("details", element("summary", "Figures"), behind, class_="figures") if behind else None
    return element("figure", caption, drawing, folded)


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """A list of names and values."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in pairs]
    return element("dl", rows, class_="facts")


def listed(entries: Iterable[Child], class_: str | None = None) -> Markup | None:
    """A list of these entries; None without any."""
    items = [element("li", entry) for entry in entries]
    return element("ul", items, class_=class_) if items else None


def differences(found: Iterable[DriftItem]) -> Markup | None:
    """The differences from the plan, one entry each; None without any."""
    return listed(
        (
            [
                element("span", tag(one.what, "warn", "≠")),
                element("div", element("span", one.message), _hint(one.hint)),
            ]
            for one in found
        ),
        "differences",
    )


def errors(found: Iterable[Error]) -> Markup | None:
    """Errors with hints; None without any."""
    return listed(([element("span", error.message), _hint(error.hint)] for error in found), "errors")


def _hint(text: str) -> Markup | None:
    return element("span", "hint: ", text, class_="hint") if text else None
