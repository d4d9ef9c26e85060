"""The top of the page: the number of hosts in each state, and a row per service, worst first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rigup.cli.output.status_rows import gpu_memory_text, with_restarts
from rigup.cli.page.content import STATES, FleetContent, HostContent, ServiceContent
from rigup.cli.page.markup import Child, Markup, element
from rigup.cli.page.measurements import best_rate
from rigup.cli.page.scales import short
from rigup.cli.page.widgets import badge, table_of

# more hosts in order than this are folded
MOST_IN_ORDER = 40
HEADS = (
    ("State", ""),
    ("Host", ""),
    ("Service", ""),
    ("Health", "wide"),
    ("Serves", "wide"),
    ("GPU memory", "wide"),
    ("tok/s", "wide figure"),
    ("Problem", "wrong"),
)


def overview_section(fleet: FleetContent, anchors: dict[str, str]) -> Markup:
    """Counts, then the hosts. anchors: by host name."""
    wrong = [host for host in fleet.worst_first if host.state != "in order"]
    right = [host for host in fleet.worst_first if host.state == "in order"]
    parts: list[Child] = [element("h2", "Overview", id="overview"), counts(fleet)]
    if wrong:
        parts += [element("h3", "Needs attention"), _table(wrong, anchors, "Hosts that need attention")]
    if right:
        listed = _table(right, anchors, "Hosts in order")
        if len(right) > MOST_IN_ORDER:
            listed = element("details", element("summary", f"{len(right)} hosts in order"), listed)
        parts += [element("h3", "In order"), listed]
    return element("section", parts, aria_labelledby="overview")


def counts(fleet: FleetContent) -> Markup:
    """The number of hosts, in all and in each state."""
    total = len(fleet.hosts)
    tiles = [element("li", element("strong", f"{total:,}"), element("span", "host" if total == 1 else "hosts"))]
    for state, count in fleet.counts.items():
        words, kind, sign = STATES[state]
        tiles.append(
            element(
                "li",
                element("strong", element("span", sign, aria_hidden="true", class_="sign"), f"{count:,}"),
                element("span", words),
                class_=kind,
            )
        )
    return element("ul", tiles, class_="counts")


def _table(hosts: Sequence[HostContent], anchors: dict[str, str], caption: str) -> Markup:
    return table_of(HEADS, [_rows(host, anchors[host.name]) for host in hosts], caption, "overview")


def _rows(host: HostContent, anchor: str) -> list[Markup]:
    """One row per service; a host without services also has a row."""
    services: Sequence[ServiceContent | None] = host.services or (None,)
    return [_row(host, service, anchor, not number) for number, service in enumerate(services)]


def _row(host: HostContent, service: ServiceContent | None, anchor: str, first: bool) -> Markup:
    rate = best_rate(service.results) if service else None
    drift = [one.what for one in (*(host.drift if first else ()), *(service.drift if service else ()))]
    problems = [error.message.removeprefix(f"{host.name}: ") for error in host.errors[:1] if first]
    whose = f"{service.name}: " if service and len(host.services) > 1 else ""
    problems += [f"{whose}drift: {', '.join(dict.fromkeys(drift))}"] if drift else []
    return element(
        "tr",
        element("td", badge(host.state) if first else ""),
        element("th", element("a", host.name, href=f"#{anchor}"), scope="row"),
        element("td", service.name if service else "-"),
        element("td", with_restarts(service.row["health"], service.row) if service else "-", class_="wide"),
        element("td", service.serves or "-" if service else "-", class_="wide"),
        element("td", (gpu_memory_text(service.row) if service else "") or "-", class_="wide"),
        element("td", "-" if rate is None else short(rate), class_="wide figure"),
        element("td", "; ".join(problems) or "-", class_="wrong"),
    )
