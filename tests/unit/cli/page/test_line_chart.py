"""Charts: points where they must be, lines named, caps marked; and the bars of memory."""

from __future__ import annotations

import pytest

from rigup.cli.page.line_chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Point, Series, line_chart
from rigup.cli.page.memory_bar import GpuUse, described, memory_bar
from rigup.cli.page.scales import from_zero, powers_of_two
from rigup.cli.page.strip_chart import Strip, strip_chart
from tests.unit.cli.page.page_content import uses
from tests.unit.cli.page.page_reader import Element, read

USE = GpuUse(1, "RTX 3090", 20_000, 15_000, 16_000, 10_000, 3_000, 2_000)


def drawn(*series: Series, events: tuple[tuple[float, str], ...] = ()) -> Element:
    """A chart of 1 to 16 at once, from 0 to 100 tokens a second."""
    chart = Chart("Rates", "They rise.", "requests at once", series, events)
    text = line_chart(chart, powers_of_two([1, 16], LEFT, RIGHT), from_zero(100, BOTTOM, TOP), "c1")
    (svg,) = read(text).all("svg")
    return svg


def number(element: Element, name: str) -> float:
    return float(element.attributes[name])


def texts(svg: Element) -> dict[str, Element]:
    return {element.text: element for element in svg.all("text")}


def test_points_lie_where_their_values_are() -> None:
    svg = drawn(Series("now", (Point(1, 0), Point(4, 50), Point(16, 100))))
    places = [(number(dot, "cx"), number(dot, "cy")) for dot in svg.all("circle")]
    middle = ((LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2)
    assert places == [pytest.approx(place) for place in ((LEFT, BOTTOM), middle, (RIGHT, TOP))]
    assert svg.all("path")[0].attributes["d"] == f"M{LEFT} {BOTTOM} L{middle[0]} {middle[1]} L{RIGHT} {TOP}"


def test_axes_are_labelled_at_their_ticks() -> None:
    found = texts(drawn(Series("now", (Point(1, 10),))))
    assert {"0", "25", "50", "75", "100", "1", "2", "4", "8", "16", "requests at once"} <= found.keys()
    assert number(found["16"], "x") == RIGHT
    assert number(found["100"], "y") == TOP + 4
    assert number(found["100"], "x") < LEFT


def test_each_line_is_named_where_it_ends_and_names_keep_apart() -> None:
    found = texts(drawn(Series("p50", (Point(1, 80), Point(16, 90))), Series("p99", (Point(1, 80), Point(16, 91)))))
    assert number(found["p50"], "x") > RIGHT
    assert number(found["p50"], "y") - number(found["p99"], "y") >= 13


def test_a_capped_level_is_hollow_and_named() -> None:
    svg = drawn(Series("", (Point(4, 50), Point(16, 50, "capped: 4 ran", True))))
    assert len(svg.all("circle")) == 1
    (hollow,) = svg.of_class("hollow")
    assert hollow.attributes["d"].startswith(f"M{RIGHT}")
    assert number(texts(svg)["capped: 4 ran"], "x") <= RIGHT + 5


def test_what_happened_is_a_line_and_a_word_where_there_is_room() -> None:
    svg = drawn(Series("", (Point(1, 50),)), events=((1, "release 2"), (1.1, "release 3"), (16, "release 4")))
    assert len(svg.of_class("event")) == 3
    assert {"release 2", "release 4"} <= texts(svg).keys() and "release 3" not in texts(svg)
    assert texts(svg)["release 4"].attributes["class"] == "end"


def test_a_chart_says_what_it_is_to_who_does_not_see_it() -> None:
    svg = drawn(Series("now", (Point(1, 10),)))
    assert svg.attributes["role"] == "img"
    assert svg.attributes["aria-labelledby"] == "c1-title c1-desc"
    assert [(one.attributes["id"], one.text) for one in (*svg.all("title"), *svg.all("desc"))] == [
        ("c1-title", "Rates"),
        ("c1-desc", "They rise."),
    ]


def test_everything_lies_within_the_drawing() -> None:
    svg = drawn(Series("now", tuple(Point(2**n, 100, f"mark {n}") for n in range(5))))
    assert svg.attributes["viewbox"] == f"0 0 {WIDTH} {HEIGHT}"
    for element in svg.all("text"):
        assert 0 <= number(element, "x") <= WIDTH and 8 <= number(element, "y") <= HEIGHT


def test_percentiles_of_one_level_are_a_row_each() -> None:
    (svg,) = read(strip_chart("Latencies", "", [Strip("TTFT", 100, 150, 200), Strip("ITL", 10, 10, 10)], "s")).all(
        "svg"
    )
    found = texts(svg)
    assert {"TTFT", "ITL", "p50 100", "p99 200", "p50 10", "milliseconds"} <= found.keys()
    assert "p99 10" not in found
    first, second = svg.all("circle")
    assert number(first, "cx") > number(second, "cx") and number(first, "cy") < number(second, "cy")


def test_a_bar_has_the_parts_of_the_plan_and_what_was_measured() -> None:
    (svg,) = read(memory_bar(USE, "m")).all("svg")
    bars = {bar.attributes["class"]: bar for bar in svg.all("rect")}
    assert [number(bars[key], "x") for key in ("weights", "kv_cache", "overhead")] == [0, 500, 650]
    assert [number(bars[key], "width") for key in ("weights", "kv_cache", "overhead")] == [498, 148, 98]
    assert (number(bars["measured"], "width"), number(bars["free"], "width")) == (800, 1000)
    assert number(bars["measured"], "y") >= number(bars["weights"], "height")
    words = "Planned: weights 9.8 GiB, KV cache 2.9 GiB, overhead 2.0 GiB; measured: 15.6 GiB; capacity 19.5 GiB."
    assert (described(USE), USE.off_by) == (words, pytest.approx(1 / 15))


def test_a_card_that_does_not_say_is_unknown_and_not_zero() -> None:
    (use,) = uses(1, None)
    (svg,) = read(memory_bar(use, "m")).all("svg")
    assert not svg.of_class("measured")
    assert (use.off_by, "measured: unknown" in described(use)) == (None, True)


def test_more_in_use_than_there_is_does_not_leave_the_drawing() -> None:
    (svg,) = read(memory_bar(GpuUse(0, "", 100, 150, 200), "m")).all("svg")
    assert all(number(bar, "x") + number(bar, "width") <= 1000 for bar in svg.all("rect") if "x" in bar.attributes)
    assert number(svg.of_class("measured")[0], "width") == 1000
