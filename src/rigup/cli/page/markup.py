"""HTML and SVG as values: everything that is not Markup is escaped, so untrusted text cannot become a tag. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Union

from rigup.printable import printable

VOID = frozenset(("meta", "link", "br", "col"))


class Markup(str):
    """Text that is HTML. Only `element` and `joined` create it, and the program's own style sheet is one."""

    __slots__ = ()


# children of an element: None is ignored, nested ones are flattened
Child = Union[str, int, float, None, Iterable["Child"]]  # noqa: UP007
Attribute = str | int | float | bool | None


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """One element. Attributes are named as in Python: class_ is class, aria_label is aria-label, viewBox is itself.

    An attribute that is None or False is left out; one that is True has no value.
    """
    tag = f"{name}{''.join(_attribute(key, value) for key, value in attributes.items())}"
    return Markup(f"<{tag}>" if name in VOID else f"<{tag}>{joined(children)}</{name}>")


def drawing(title: str, description: str, id_: str, *children: Child, **attributes: Attribute) -> Markup:
    """One SVG drawing with a description for screen readers. id_: unique in the page."""
    words = (element("title", title, id=f"{id_}-title"), element("desc", description, id=f"{id_}-desc"))
    labels = f"{id_}-title {id_}-desc"
    return element("svg", *words, *children, **attributes, role="img", aria_labelledby=labels)


def joined(*children: Child) -> Markup:
    """Concatenates children."""
    return Markup("".join(_text(child) for child in children))


def number(value: float) -> str:
    """A coordinate, rounded to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def anchors(names: Iterable[str], prefix: str) -> dict[str, str]:
    """An id for each name, from its letters that are valid in a URL; each id is unique."""
    found: dict[str, str] = {}
    for name in names:
        made = base = f"{prefix}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}"
        count = 1
        while made in found.values():
            count += 1
            made = f"{base}--{count}"
        found[name] = made
    return found


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str):
        return escape(printable(child))
    if isinstance(child, (int, float)):
        return number(child)
    return "".join(_text(one) for one in child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = value if isinstance(value, str) else number(value)
    return f' {name}="{escape(printable(text))}"'
