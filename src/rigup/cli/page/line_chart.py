"""A line chart as SVG: axes with round numbers, and each line's name at its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rigup.cli.page.markup import Markup, drawing, element
from rigup.cli.page.scales import Scale, spread

WIDTH, HEIGHT = 380, 224
LEFT, RIGHT, TOP, BOTTOM = 44.0, 322.0, 14.0, 184.0
LABEL_GAP = 13.0
DOT = 2.8
EVENT_WIDTH = 62.0
# a label this close to the right end is written to the left of its point
NEAR_THE_END = RIGHT - 90


@dataclass(frozen=True)
class Point:
    """One measurement. mark: a short label next to it; hollow: drawn as a diamond outline."""

    x: float
    y: float
    mark: str = ""
    hollow: bool = False


@dataclass(frozen=True)
class Series:
    """One line. look: the CSS class for colour and dashes ("one", "two", "three", "before")."""

    name: str
    points: tuple[Point, ...]
    look: str = "one"


@dataclass(frozen=True)
class Chart:
    """The content of a chart. title and description: for screen readers. across: label of the x axis.

    events: labelled positions on the x axis.
    """

    title: str
    description: str
    across: str
    series: tuple[Series, ...]
    events: tuple[tuple[float, str], ...] = ()


def line_chart(chart: Chart, x: Scale, y: Scale, id_: str) -> Markup:
    """The drawing. id_: unique in the page; the x axis must lie between LEFT and RIGHT, the y axis BOTTOM to TOP."""
    return drawing(
        chart.title,
        chart.description,
        id_,
        _grid(x, y, chart.across),
        _events(chart.events, x),
        [_line(series, x, y) for series in reversed(chart.series)],
        _names(chart.series, x, y),
        [_marks(series, x, y) for series in chart.series],
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
    )


def _grid(x: Scale, y: Scale, across: str) -> list[Markup]:
    drawn = []
    for tick in y.ticks:
        at = y.at(tick)
        drawn.append(element("line", class_="grid", x1=LEFT, x2=RIGHT, y1=at, y2=at))
        drawn.append(element("text", y.label(tick), class_="end", x=LEFT - 7, y=at + 4))
    drawn.append(element("line", class_="axis", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM))
    for tick in x.ticks:
        at = x.at(tick)
        drawn.append(element("line", class_="axis", x1=at, x2=at, y1=BOTTOM, y2=BOTTOM + 4))
        drawn.append(element("text", x.label(tick), class_="middle", x=at, y=BOTTOM + 17))
    drawn.append(element("text", across, class_="middle", x=(LEFT + RIGHT) / 2, y=BOTTOM + 35))
    return drawn


def _events(events: Sequence[tuple[float, str]], x: Scale) -> list[Markup]:
    """A vertical line per event, labelled at its foot if there is room."""
    drawn, last = [], LEFT - EVENT_WIDTH
    for value, words in events:
        at = x.at(value)
        drawn.append(element("line", class_="event", x1=at, x2=at, y1=TOP, y2=BOTTOM))
        if at - last >= EVENT_WIDTH:
            side = ("end", at - 4) if at > RIGHT - EVENT_WIDTH else ("start", at + 4)
            drawn.append(element("text", words, class_=side[0], x=side[1], y=BOTTOM - 7))
            last = at
    return drawn


def _line(series: Series, x: Scale, y: Scale) -> Markup:
    places = [(x.at(point.x), y.at(point.y)) for point in series.points]
    path = " ".join(f"{'L' if number else 'M'}{at:.1f} {up:.1f}" for number, (at, up) in enumerate(places))
    dots = [_dot(point, *place) for point, place in zip(series.points, places, strict=True)]
    return element("g", element("path", d=path, fill="none"), dots, class_=f"line {series.look}")


def _dot(point: Point, at: float, up: float) -> Markup:
    if not point.hollow:
        return element("circle", cx=at, cy=up, r=DOT)
    reach = DOT * 1.9
    outline = f"M{at:.1f} {up - reach:.1f}l{reach:.1f} {reach:.1f} -{reach:.1f} {reach:.1f} -{reach:.1f} -{reach:.1f}z"
    return element("path", class_="hollow", d=outline)


def _names(all_series: Sequence[Series], x: Scale, y: Scale) -> list[Markup]:
    """Each line's name at its last point, moved apart to avoid overlaps."""
    named = [series for series in all_series if series.name and series.points]
    places = spread([y.at(series.points[-1].y) + 4 for series in named], LABEL_GAP, TOP + 4, BOTTOM)
    return [
        element("text", series.name, class_=f"name {series.look}", x=x.at(series.points[-1].x) + 9, y=place)
        for series, place in zip(named, places, strict=True)
    ]


def _marks(series: Series, x: Scale, y: Scale) -> list[Markup]:
    drawn = []
    for point in series.points:
        if point.mark:
            at, up = x.at(point.x), y.at(point.y)
            side = ("end", at + 3) if at > NEAR_THE_END else ("start", at - 3)
            away = 19 if up < TOP + 18 else -10
            drawn.append(element("text", point.mark, class_=f"mark {side[0]}", x=side[1], y=up + away))
    return drawn
