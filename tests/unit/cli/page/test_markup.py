"""Markup: what is not markup is escaped, and ids are never given twice."""

from __future__ import annotations

import pytest

from rigup.cli.page.markup import Markup, anchors, element, joined
from tests.unit.cli.page.page_content import HOSTILE
from tests.unit.cli.page.page_reader import read


def test_an_element_has_its_attributes_and_children() -> None:
    made = element("p", "one", element("br"), ["two", None, 3], class_="a", aria_label="b", open=True, id=None, x=1.5)
    assert made == '<p class="a" aria-label="b" open x="1.5">one<br>two3</p>'


@pytest.mark.parametrize("text", [HOSTILE, '"><img src=x>', "' onload='x", "</style><script>", "&lt;script&gt;"])
def test_text_and_attributes_come_back_as_they_were(text: str) -> None:
    (found,) = read(element("p", text, title=text)).all("p")
    assert (found.attributes, found.children, found.text) == ({"title": text}, [], text)


def test_only_markup_is_taken_for_markup() -> None:
    assert joined("<b>", Markup("<b></b>")) == "&lt;b&gt;<b></b>"


def test_what_html_has_no_place_for_is_taken_out() -> None:
    assert element("p", "a\x00b\x1b[31mc\ud800\n\td") == "<p>abc\ufffd\n\td</p>"


def test_an_anchor_is_an_address_and_never_that_of_another() -> None:
    found = anchors(["ada@gpu1.lan", "ada gpu1.lan", "gpu1.lan", "gpu1.lan/x"], "host")
    assert found["ada@gpu1.lan"] == "host-ada-gpu1.lan"
    assert found["ada gpu1.lan"] == "host-ada-gpu1.lan--2"
    assert len(set(found.values())) == 4
