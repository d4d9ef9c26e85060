"""`rigup fit --html`: the tables as one page to pass around, with the style of the pages about fleets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rigup.catalogue.model import Model
from rigup.cli.output.fit import ON_HOST, about, cells, gpus_text, license_text, rig_text
from rigup.cli.page.content import PageOrigin
from rigup.cli.page.document import document
from rigup.cli.page.markup import Child, Markup, anchors, element
from rigup.cli.page.widgets import table, table_of, tag
from rigup.project.fit_table import Fit, FitFilter
from rigup.rig import Rig

# by level of quality: kind and sign of its tag
LOOKS = {"lossless": ("good", "✓"), "near": ("good", "✓"), "good": ("plain", "·"), "degraded": ("warn", "!")}
HEADS = (
    ("Quality", ""),
    ("Engine", "wide"),
    ("Spread", "wide"),
    ("Context", "figure"),
    ("tokens/s", "figure"),
    ("License", "wide"),
)
ABOUT = (
    "Planned offline by rigup fit, each model as it is served best. tokens/s: estimated decode speed of one request. "
    "Quality: the level of the quantisation against the model as it was published."
)
PLANNED = "Planned from the catalogue; no host was asked."


@dataclass(frozen=True)
class FitRow:
    """One line of a table. name: of the model or the rig. checkpoint: which one, "org/name Q4_K_M"."""

    name: str
    checkpoint: str
    quality: str
    engine: str
    spread: str
    context: str
    speed: str
    license: str


@dataclass(frozen=True)
class FitTable:
    """A table under a title. lacking: what is not in it, each with the reason. of: how many were looked at."""

    title: str
    head: str
    rows: tuple[FitRow, ...]
    lacking: tuple[tuple[str, str], ...]

    @property
    def of(self) -> int:
        """How many were looked at."""
        return len(self.rows) + len(self.lacking)


def rigs_page(origin: PageOrigin, found: Sequence[tuple[str, Rig, Sequence[Fit]]], wanted: FitFilter) -> str:
    """A page with a table of models for each rig. found: groups, rig, and its models in order."""
    named = [(f"{groups}: {rig_text(rig)}" if groups else rig_text(rig), fits) for groups, rig, fits in found]
    tables = [_table(title, "Model", [(fit.model.name, fit) for fit in fits], wanted) for title, fits in named]
    what = found[0][1].text if len(found) == 1 else f"{len(found)} rigs"
    return fit_page(f"Models for {what}", origin, tables, _filter_line(wanted))


def model_page(
    origin: PageOrigin, model: Model, named: Sequence[tuple[str, Fit]], found: Sequence[Fit], wanted: FitFilter
) -> str:
    """A page with the rigs of an inventory that serve a model, and the fewest of each GPU that does."""
    own = [(name or rig_text(fit.rig), fit) for name, fit in named]
    least = [(gpus_text(fit.rig), fit) for fit in found]
    titled = (("These rigs", own), ("The fewest of each GPU", least))
    tables = [_table(title, "Rig", pairs, wanted) for title, pairs in titled if pairs]
    first = (f"License: {license_text(model)}", *about(model), *_filter_line(wanted))
    return fit_page(f"Rigs for {model.name}", origin, tables, first)


def fit_page(title: str, origin: PageOrigin, tables: Sequence[FitTable], first: Sequence[str] = ()) -> str:
    """The page. first: what else is to be said first."""
    where = anchors((one.title for one in tables), "rig")
    lines = [element("p", line) for line in (*first, ABOUT)]
    return document(title, origin, [lines, [_section(one, where[one.title]) for one in tables]], PLANNED)


def _filter_line(wanted: FitFilter) -> tuple[str, ...]:
    """What the tables are limited to, if anything."""
    return (f"Listed only: {wanted.text}.",) if wanted.text else ()


def _table(title: str, head: str, pairs: Sequence[tuple[str, Fit]], wanted: FitFilter) -> FitTable:
    listed = tuple(_row(name, fit) for name, fit in pairs if wanted.accepts(fit))
    other = tuple((name, fit.reason or wanted.missed_by(fit)) for name, fit in pairs if not wanted.accepts(fit))
    return FitTable(title, head, listed, other)


def _row(name: str, fit: Fit) -> FitRow:
    assert fit.decision is not None
    quality, _, engine, spread, context, speed = cells(fit)
    label = fit.decision.candidate.checkpoint.label
    return FitRow(name, label, quality, engine, spread, context, speed, license_text(fit.model))


def _section(one: FitTable, anchor: str) -> Markup:
    parts: list[Child] = [element("h2", one.title, id=anchor)]
    lines = [_line(row) for row in one.rows]
    heads = ((one.head, ""), *HEADS)
    parts.append(table_of(heads, lines, one.title, "fits") if lines else element("p", "Nothing fits."))
    if any("*" in row.spread for row in one.rows):
        parts.append(element("p", ON_HOST, class_="about"))
    if one.lacking:
        words = f"{len(one.lacking)} of {one.of} not listed"
        reasons = table((one.head, "Why"), one.lacking, words)
        parts.append(element("details", element("summary", words), reasons, class_="folded"))
    return element("section", parts, aria_labelledby=anchor)


def _line(row: FitRow) -> Markup:
    kind, sign = LOOKS.get(row.quality, ("plain", "·"))
    values = (tag(row.quality, kind, sign), row.engine, row.spread, row.context, row.speed, row.license)
    named = element("th", row.name, element("span", row.checkpoint, class_="hint"), scope="row")
    looks = [element("td", value, class_=look or None) for value, (_, look) in zip(values, HEADS, strict=True)]
    return element("tr", named, looks)
