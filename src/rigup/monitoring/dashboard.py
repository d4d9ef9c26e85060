"""The fleet's dashboard, in the format that Grafana imports. Pure: equal panels give equal bytes."""

from __future__ import annotations

import json
from typing import Any

from rigup.monitoring.dashboard_panels import ROWS, WIDE, Panel

# The schema of Grafana 11; later versions accept it and upgrade it themselves.
SCHEMA = 39
TITLE, UID = "rigup fleet", "rigup-fleet"
# The first variable: which Prometheus to ask.
PROMETHEUS = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1}
# Hides the columns of a table that do not help: the value is always 1, and the scraped address does not matter.
HIDDEN = dict.fromkeys(("Time", "Value", "__name__", "instance", "job"), True)
COLUMNS = {"id": "organize", "options": {"excludeByName": HIDDEN}}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HEIGHT, STAT_HEIGHT = 8, 4

# Each variable only offers what the ones before it select; "All" also matches series without the label.
VARIABLES = {
    "group": "label_values(up, group)",
    "host": 'label_values(up{group=~"$group"}, host)',
    "service": 'label_values(up{group=~"$group", host=~"$host", service!=""}, service)',
}


def dashboard() -> str:
    """The text of the dashboard file."""
    contents = {
        "uid": UID,
        "title": TITLE,
        "description": "Written by rigup metrics: health and versions, requests, GPUs and machines of a fleet.",
        "tags": ["rigup"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [PROMETHEUS, *(_variable(name, query) for name, query in VARIABLES.items())]},
        "panels": _panels(),
    }
    return json.dumps(contents, indent=1, ensure_ascii=False) + "\n"


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> list[dict[str, Any]]:
    """Rows and panels with their positions, from left to right and top to bottom."""
    found: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"x": 0, "y": y, "w": WIDE, "h": 1}
        found.append({"type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []})
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > WIDE:
                x, y, tallest = 0, y + tallest, 0
            height = STAT_HEIGHT if panel.kind == "stat" else HEIGHT
            found.append({**_panel(panel), "gridPos": {"x": x, "y": y, "w": panel.width, "h": height}})
            x, tallest = x + panel.width, max(tallest, height)
        y += tallest
    return [{"id": number, **panel} for number, panel in enumerate(found, 1)]


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, **({"max": panel.most} if panel.most else {})}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                **({"format": "table", "instant": True, "range": False} if panel.kind == "table" else {"range": True}),
            }
            for number, query in enumerate(panel.queries)
        ],
        **({"transformations": [COLUMNS]} if panel.kind == "table" else {}),
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        legend = {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "graphMode": "none"}
    return {}
