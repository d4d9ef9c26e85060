"""What `rigup status` says of models that take turns: which one is loaded."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from rigup.cli.output.status_rows import row
from rigup.cli.status import table
from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.facts.probe import Probe
from rigup.operations.service.answer import Answer
from rigup.plan import Plan
from rigup.run.result import HostResult
from tests.unit.planner.asking import decided, side_by_side

SMALL = {"model": "SmolLM2-135M-Instruct"}


def group() -> Plan:
    services = {name: {**SMALL, "swap": True, "served_name": f"model-{name}"} for name in ("first", "second")}
    (whole,) = as_groups(taking_turns(side_by_side(services, [], 64)))
    return whole


def asked(plan: Plan, model: str) -> dict[str, Any]:
    result = HostResult("gpu1", probe=Probe())
    result.answers.append(Answer("gpu1", plan.service.name, "Paris", 1, 0.5, 2.0, model))
    return row(result, plan, ())


def cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    file = io.StringIO()
    Console(file=file, width=200).print(table(rows))
    return [re.split(" {2,}", line.strip()) for line in file.getvalue().splitlines()[1:]]


def test_the_model_that_answered_is_resident_where_several_take_turns() -> None:
    found = asked(group(), "model-second")
    assert found["resident"] == "model-second"
    assert [(one["service"], one["model"], one["loaded"]) for one in found["members"]] == [
        ("first", "model-first", False),
        ("second", "model-second", True),
    ]
    alone = asked(decided([], SMALL), "")
    assert (alone["resident"], alone["members"]) == (None, [])


@pytest.mark.parametrize("loaded", ["first", "second"])
def test_the_table_has_a_line_for_each_that_takes_turns(loaded: str) -> None:
    lines = cells([asked(group(), f"model-{loaded}")])
    assert [line[:2] for line in lines] == [["gpu1", "first"], ["gpu1", "second"]]
    assert ["not loaded" in line for line in lines] == [name != loaded for name in ("first", "second")]
    assert ["0.50 s" in line for line in lines] == [name == loaded for name in ("first", "second")]
    assert [cell.partition(" ")[0] for cell in lines[1] if "SmolLM2" in cell] == ["SmolLM2-135M-Instruct-GGUF"]


def test_of_a_group_that_does_not_answer_no_model_is_loaded() -> None:
    first, second = cells([row(HostResult("gpu1", probe=Probe()), group(), ())])
    assert "not loaded" not in first and "not loaded" in second
