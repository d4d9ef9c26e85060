"""One host on the page: a line with its state, and the details folded below it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rigup.cli.page.benchmark_section import benchmark_section
from rigup.cli.page.content import HostContent, ReleaseItem, ServiceContent, Version
from rigup.cli.page.markup import Child, Markup, element
from rigup.cli.page.memory_bar import PARTS, GpuUse, gib, memory_bar
from rigup.cli.page.widgets import badge, differences, errors, facts, listed, table, tag
from rigup.run.result import HEALTHY, unanswered

# more changes than this in one release are folded
CHANGES_SHOWN = 6


def host_section(host: HostContent, anchor: str, number: int, unfolded: bool) -> Markup:
    """One host. anchor: its id in the page. number: makes the ids inside it unique."""
    heading = element(
        "summary",
        element("h3", host.name),
        badge(host.state),
        element("span", " · ".join(_gist(host)), class_="gist"),
    )
    services = [service_part(service, host.name, f"h{number}-s{n}") for n, service in enumerate(host.services)]
    folded = element("details", heading, element("div", _about(host), services, class_="body"), open=unfolded)
    return element("article", folded, class_="host", id=anchor)


def _gist(host: HostContent) -> list[str]:
    found = [host.group] if host.group else []
    found += [f"{service.name}: {service.serves or service.row['health']}" for service in host.services]
    return found


def _about(host: HostContent) -> list[Child]:
    """The details of the host itself."""
    drift = differences(host.drift)
    return [
        errors(host.errors),
        element("div", facts(host.facts), class_="block") if host.facts else None,
        element("div", element("h4", "Drift of the host"), drift, class_="block") if drift else None,
        element("div", element("h4", "Versions"), versions(host.versions), class_="block") if host.versions else None,
    ]


def versions(found: Sequence[Version]) -> Markup:
    """The versions on a host compared with the lock, one per row; differences are also marked by a word."""
    rows = [(one.what, one.found or "none", _standing(one)) for one in found]
    return table(("what", "on the host", "lock and plan"), rows, "Versions on the host against lock and plan")


def _standing(version: Version) -> Child:
    if not version.wanted:
        return "not pinned"
    if version.differs:
        return [tag("differs", "warn", "≠"), f" {version.wanted}"]
    return tag("as locked", "good", "✓")


def service_part(service: ServiceContent, host: str, id_: str) -> Markup:
    """One service of a host. id_: prefix of every id inside it."""
    row = service.row
    kind, sign = _health(row["health"])
    seconds = f" in {row['seconds']:.2f} s" if row.get("seconds") else ""
    heading = element(
        "h4",
        service.name,
        " ",
        tag(f"{row['health']}{seconds}", kind, sign),
        None if service.planned else tag("not in the inventory", "warn", "≠"),
    )
    parts: list[Child] = [heading]
    if service.serves:
        parts.append(element("p", service.serves, element("span", f" with {service.engine}"), class_="serves"))
    if drift := differences(service.drift):
        parts += [element("h5", "Drift"), drift]
    parts.append(facts(service.facts) if service.facts else None)
    if service.memory:
        parts += [element("h5", "GPU memory"), memory(service.memory, id_)]
    if service.planned:
        parts += [element("h5", "Benchmarks"), *benchmark_section(service.results, f"{service.name} on {host}", id_)]
    parts += [element("h5", "Releases"), releases(service.releases)]
    return element("section", parts, class_="service", aria_label=f"{service.name} on {host}")


def _health(health: str) -> tuple[str, str]:
    if unanswered(health):
        return "bad", "×"  # noqa: RUF001
    return ("good", "✓") if health in HEALTHY else ("plain", "·")


def memory(uses: Sequence[GpuUse], id_: str) -> list[Markup]:
    """A bar per GPU, a legend, and the figures."""
    legend = [element("li", element("span", class_=f"swatch {key}"), words) for key, words in PARTS]
    legend.append(element("li", element("span", class_="swatch free"), "free"))
    legend.append(element("li", element("span", class_="swatch measured"), "measured, below the plan"))
    bars = [element("li", _bar(use, f"{id_}-gpu{number}")) for number, use in enumerate(uses)]
    heads = ("GPU", *(words for _, words in PARTS), "planned", "measured", "capacity")
    rows = [
        (
            f"{use.gpu} {use.name}".strip(),
            *("-" if mib is None else gib(mib) for mib in (use.weights, use.kv_cache, use.overhead)),
            gib(use.planned),
            "unknown" if use.measured is None else gib(use.measured),
            gib(use.capacity),
        )
        for use in uses
    ]
    behind = table(heads, rows, "Memory of each GPU, planned and measured")
    return [
        element("ul", bars, class_="bars"),
        element("ul", legend, class_="legend", aria_hidden="true"),
        element("details", element("summary", "Figures"), behind, class_="figures"),
    ]


def _bar(use: GpuUse, id_: str) -> list[Child]:
    off = use.off_by
    measured = "measured: unknown" if use.measured is None else f"measured {use.measured / 1024:.1f}"
    words = f"{measured}, planned {use.planned / 1024:.1f} of {gib(use.capacity)}"
    return [
        element("span", f"GPU {use.gpu} ", element("span", use.name), class_="gpu"),
        element("span", words, f" ({100 * off:+.1f} %)" if off is not None else "", class_="amounts"),
        memory_bar(use, id_),
    ]


def releases(found: Sequence[ReleaseItem] | None) -> Markup:
    """The releases of a service that a host retains, newest first, each with its changes."""
    if not found:
        words = "Could not read them from the host." if found is None else "None."
        return element("p", words, class_="none")
    return element("ol", [_release(release) for release in found], class_="releases")


def _release(release: ReleaseItem) -> Markup:
    marks: list[Child] = [tag("current", "good", "●")] if release.current else []
    marks += [] if release.answered else [tag("never answered", "warn", "!")]
    oldest = element("p", "Oldest retained release.", class_="none")
    changes = listed(element("code", words) for words in release.changed) or oldest
    if len(release.changed) > CHANGES_SHOWN:
        changes = element("details", element("summary", f"{len(release.changed)} changes"), changes)
    name = element("strong", f"Release {release.number}")
    head = element("div", name, marks, element("span", release.made, class_="made"))
    return element("li", head, changes)
