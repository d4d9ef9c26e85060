"""What `rigup status` says of models that take turns: which one is resident."""

from __future__ import annotations

import io

from rich.console import Console

from rigup.cli.output.status_rows import row
from rigup.cli.status import table
from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.facts.probe import Probe
from rigup.operations.service.health import Answer
from rigup.plan import Plan
from rigup.run.result import HostResult
from tests.unit.planner.asking import decided, side_by_side

SMALL = {"model": "SmolLM2-135M-Instruct"}


def asked(plan: Plan, model: str) -> str | None:
    result = HostResult("gpu1", probe=Probe())
    result.answers.append(Answer("gpu1", plan.service.name, "Paris", 1, 0.5, 2.0, model))
    found: str | None = row(result, plan, ())["resident"]
    return found


def test_the_model_that_answered_is_resident_where_several_take_turns() -> None:
    services = {name: {**SMALL, "swap": True, "served_name": name} for name in ("first", "second")}
    (whole,) = as_groups(taking_turns(side_by_side(services, [], 64)))
    assert asked(whole, "second") == "second"
    assert asked(decided([], SMALL), "") is None


def test_the_table_has_it_in_place_of_the_checkpoint() -> None:
    shown = {"host": "gpu1", "service": "first", "health": "answers", "drift": "none", "resident": "second"}
    file = io.StringIO()
    Console(file=file, width=200).print(table([shown]))
    assert "second is resident" in file.getvalue()
