"""The gateways on the page: who answers for which model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rigup.cli.output.gateways import COLUMNS, gateway_rows, notes_of
from rigup.cli.page.markup import Child, Markup, element
from rigup.cli.page.widgets import table, tag

SIGNS = {"up": ("good", "✓"), "drained": ("warn", "≠")}


def gateway_section(gateways: Sequence[dict[str, Any]]) -> Markup:
    """A table for each gateway, a row for each backend."""
    parts: list[Child] = [element("h2", "Gateways", id="gateways")]
    for gateway in gateways:
        parts.append(element("h3", gateway["gateway"]))
        if not gateway["answers"]:
            parts.append(element("p", tag("does not answer", "bad", "?")))
        for text in notes_of(gateway):
            parts.append(element("p", tag(text, "warn", "≠")))
        rows = [_row(cells) for _, *cells in gateway_rows(gateway)]
        parts.append(table([column.head for column in COLUMNS[1:]], rows, f"Backends of {gateway['gateway']}"))
    return element("section", parts, aria_labelledby="gateways")


def _row(cells: Sequence[str]) -> list[Child]:
    model, host, service, state, *numbers = cells
    kind, sign = SIGNS.get(state, ("bad", "?"))
    return [model, host, service, tag(state, kind, sign), *numbers]
