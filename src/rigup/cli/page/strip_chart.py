"""Percentiles of several figures as SVG: one row each on a common logarithmic axis, from p50 to p99. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rigup.cli.page.markup import Child, Markup, drawing, element
from rigup.cli.page.scales import decades, short

WIDTH = 380
LEFT, RIGHT, TOP = 44.0, 362.0, 12.0
ROW = 44.0
# percentiles closer than this, in pixels, share a label
APART = 34.0


@dataclass(frozen=True)
class Strip:
    """One figure, in milliseconds."""

    name: str
    p50: float
    p95: float
    p99: float


def strip_chart(title: str, description: str, strips: Sequence[Strip], id_: str) -> Markup:
    """The drawing. id_: unique in the page."""
    scale = decades([value for strip in strips for value in (strip.p50, strip.p95, strip.p99)], LEFT + 8, RIGHT - 8)
    bottom = TOP + ROW * len(strips)
    axis: list[Child] = [element("line", class_="axis", x1=LEFT, x2=RIGHT, y1=bottom, y2=bottom)]
    for tick in scale.ticks:
        at = scale.at(tick)
        axis.append(element("line", class_="grid", x1=at, x2=at, y1=TOP - 6, y2=bottom))
        axis.append(element("text", scale.label(tick), class_="middle", x=at, y=bottom + 16))
    axis.append(element("text", "milliseconds", class_="middle", x=(LEFT + RIGHT) / 2, y=bottom + 34))
    rows: list[Child] = []
    for number, strip in enumerate(strips):
        up = TOP + ROW * number + 20
        places = [scale.at(value) for value in (strip.p50, strip.p95, strip.p99)]
        rows.append(element("text", strip.name, class_="end name one", x=LEFT - 6, y=up + 4))
        rows.append(_strip(places, up))
        rows.append(_labels(strip, places, up))
    box = f"0 0 {WIDTH} {bottom + 42:.0f}"
    return drawing(title, description, id_, axis, rows, class_="chart", viewBox=box)


def _strip(places: Sequence[float], up: float) -> Markup:
    p50, p95, p99 = places
    return element(
        "g",
        element("line", x1=p50, x2=p99, y1=up, y2=up),
        element("circle", cx=p50, cy=up, r=4),
        element("line", x1=p95, x2=p95, y1=up - 5, y2=up + 5),
        element("line", x1=p99, x2=p99, y1=up - 5, y2=up + 5),
        class_="line one",
    )


def _labels(strip: Strip, places: Sequence[float], up: float) -> list[Markup]:
    """p50 above its dot, p99 below its end; a single label if they almost coincide."""
    p50, _, p99 = places
    drawn = [element("text", f"p50 {short(strip.p50)}", class_=f"mark {_side(p50)}", x=p50, y=up - 9)]
    if p99 - p50 >= APART / 4:
        drawn.append(element("text", f"p99 {short(strip.p99)}", class_=f"mark {_side(p99)}", x=p99, y=up + 17))
    return drawn


def _side(at: float) -> str:
    return "start" if at < LEFT + APART else "end" if at > RIGHT - APART else "middle"
