"""The whole page: one self-contained file that loads nothing and runs nothing. Pure."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from rigup.cli.page.content import FleetContent, PageOrigin
from rigup.cli.page.gateway_section import gateway_section
from rigup.cli.page.host_section import host_section
from rigup.cli.page.markup import Child, Markup, anchors, element, joined
from rigup.cli.page.overview_section import overview_section

# up to this many hosts are all unfolded at first; otherwise only those that need attention
MOST_UNFOLDED = 6
REDACTED = "Secrets were redacted; host names and addresses were not."
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%2332628d' "
    "d='M1 2h9v5H1z'/%3E%3Cpath fill='%2327857b' d='M11 2h4v5h-4z'/%3E"
    "%3Cpath fill='%23808890' d='M1 9h12v5H1z'/%3E%3C/svg%3E"
)


def fleet_page(fleet: FleetContent) -> str:
    """The page of a fleet."""
    where = anchors((host.name for host in fleet.hosts), "host")
    few = len(fleet.hosts) <= MOST_UNFOLDED
    hosts = [
        host_section(host, where[host.name], number, few or host.state != "in order")
        for number, host in enumerate(fleet.worst_first)
    ]
    drift = element(
        "p", "This page shows the drift that the probe finds; ", element("code", "rigup diff"), " also checks files."
    )
    listed = element("section", element("h2", "Hosts", id="hosts"), drift, hosts, aria_labelledby="hosts")
    gateways = [gateway_section(fleet.gateways)] if fleet.gateways else []
    title = f"{fleet.origin.fleet}: status of {len(fleet.hosts):,} host{'s' * (len(fleet.hosts) != 1)}"
    return document(title, fleet.origin, [overview_section(fleet, where), *gateways, listed])


def document(title: str, origin: PageOrigin, content: Child, made_from: str = REDACTED) -> str:
    """A page with this content between header and footer. made_from: the footer's last sentence."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="robots", content="noindex"),
        element("meta", name="generator", content=f"rigup {origin.rigup}"),
        element("title", title),
        element("link", rel="icon", href=ICON),
        element("style", style_sheet()),
    )
    top = element("header", element("h1", title), element("p", _made(origin)))
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        top,
        element("main", content, id="content", tabindex=-1),
        element("footer", element("p", _origin(origin), f" {made_from}")),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def policy() -> str:
    """The page's content security policy: it allows this style sheet and the icon, and loads or runs nothing else."""
    digest = base64.b64encode(hashlib.sha256(style_sheet().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


@cache
def style_sheet() -> Markup:
    """The one style sheet of all pages."""
    text = (Path(__file__).parent / "page.css").read_text()
    assert "</" not in text
    return Markup(text)


def _made(origin: PageOrigin) -> Markup:
    parts: list[Child] = [element("time", origin.made, datetime=origin.made.replace(" UTC", "Z").replace(" ", "T"))]
    parts += [" · only ", element("code", origin.limit)] if origin.limit else []
    parts += [f" · rigup {origin.rigup} · ", f"lock {origin.lock[:12]}" if origin.lock else "no lock"]
    parts += [f" · commit {origin.commit[:12]}{'-dirty' * origin.commit.endswith('-dirty')}"] if origin.commit else []
    return joined(parts)


def _origin(origin: PageOrigin) -> list[Child]:
    parts: list[Child] = [f"Created {origin.made} by rigup {origin.rigup}"]
    parts += [", lock ", element("code", f"sha256:{origin.lock}")] if origin.lock else [", no lock"]
    parts += [", commit ", element("code", origin.commit)] if origin.commit else [", not from a commit"]
    return [*parts, "."]
