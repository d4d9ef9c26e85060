"""Every example system: what `rigup plan` prints for it, and its command, word by word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from rigup.cli.output.plan import show
from rigup.plan import Plan
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from tests.golden.golden import FOLDER, assert_golden
from tests.terminal import Terminal

INVENTORY = Path(__file__).parents[2] / "inventories" / "seeds.py"
PLANS = plan_project(load_project(str(INVENTORY)))


def group(plan: Plan) -> str:
    return plan.group


@pytest.mark.parametrize("plan", PLANS, ids=group)
def test_text(plan: Plan) -> None:
    file = Terminal()
    show((plan,), Console(file=file, width=80, highlight=False, color_system=None))
    assert_golden(f"plans/{plan.group}.txt", file.getvalue())


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.verdict == "ok"], ids=group)
def test_command(plan: Plan) -> None:
    rendered = {"command": plan.command, "environment": plan.environment}
    assert_golden(f"commands/{plan.group}.json", json.dumps(rendered, indent=1) + "\n")


def test_no_golden_file_is_left_over() -> None:
    known = {plan.group for plan in PLANS}
    kept = {path.stem for folder in ("plans", "commands") for path in (FOLDER / folder).iterdir()}
    assert kept - known == set()
