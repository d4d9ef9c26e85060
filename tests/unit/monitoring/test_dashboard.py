"""The dashboard: a document that Grafana can read, about metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rigup.monitoring.alerts import ALERTS
from rigup.monitoring.dashboard import dashboard
from rigup.monitoring.dashboard_panels import ROWS
from rigup.programs.release_metrics import HELP

METRICS = Path(__file__).parents[2] / "stand_in_metrics"
# Every metric that a query may name, but for those of Prometheus itself.
NAME = re.compile(r"\b(?:(?:vllm|sglang|llamacpp):\w+|(?:DCGM_FI|haproxy|node|rigup)_\w+)\b")


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(dashboard())["panels"] if panel["type"] != "row"]


def known() -> set[str]:
    """The metrics that rigup's own program and the recordings have."""
    recorded = {
        re.split(r"[{ ]", line)[0]
        for file in METRICS.glob("*.txt")
        for line in file.read_text().splitlines()
        if not line.startswith("#")
    }
    return recorded | set(HELP)


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    for panel in panels():
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"] and panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])


def test_ids_and_titles_are_unique_and_no_panel_lies_on_another() -> None:
    said = json.loads(dashboard())
    every = said["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in every:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    assert [panel["title"] for panel in every if panel["type"] == "row"] == [row.title for row in ROWS]


def test_it_can_be_narrowed_to_a_source_a_group_a_host_and_a_service() -> None:
    variables = {variable["name"]: variable for variable in json.loads(dashboard())["templating"]["list"]}
    assert list(variables) == ["datasource", "group", "host", "service"]
    assert variables["datasource"]["query"] == "prometheus"
    used = set(re.findall(r"\$(\w+)", " ".join(t["expr"] for panel in panels() for t in panel["targets"])))
    assert used == {"group", "host", "service", "__rate_interval"}
    assert all('group=~"$group", host=~"$host"' in t["expr"] for panel in panels() for t in panel["targets"])


def test_every_metric_is_one_that_its_source_has() -> None:
    asked = {name for panel in panels() for target in panel["targets"] for name in NAME.findall(target["expr"])}
    asked |= {name for alert in ALERTS for name in NAME.findall(alert.expression)}
    assert len(asked) > 50
    assert asked - known() == set()
