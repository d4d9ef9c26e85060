"""Services that span hosts: what `rigup plan` prints for each, and the command of every host, word by word."""

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
from tests.nodes import bound
from tests.terminal import Terminal

INVENTORY = Path(__file__).parents[2] / "inventories" / "across_hosts.py"
PLANS = plan_project(load_project(str(INVENTORY)))
GROUPS = tuple(dict.fromkeys(plan.group for plan in PLANS))


def plans_of(group: str) -> tuple[Plan, ...]:
    return tuple(plan for plan in PLANS if plan.group == group)


@pytest.mark.parametrize("group", GROUPS)
def test_text(group: str) -> None:
    file = Terminal()
    show(plans_of(group), Console(file=file, width=80, highlight=False, color_system=None))
    assert_golden(f"across_hosts/{group}.txt", file.getvalue())


@pytest.mark.parametrize("group", GROUPS)
def test_commands(group: str) -> None:
    """As planned, with what stands for addresses; and as they are run once those are known."""
    plans = plans_of(group)
    run = bound(plans)
    rendered = {
        plan.host: {
            "planned": {"command": plan.command, "environment": plan.environment},
            "run": {"command": known.command, "environment": known.environment},
            "peer_ports": [port.model_dump() for port in plan.peer_ports],
        }
        for plan, known in zip(plans, run, strict=True)
    }
    assert_golden(f"across_hosts/{group}.json", json.dumps(rendered, indent=1) + "\n")
    assert "{node" not in " ".join(word for plan in run for word in (*plan.command, *plan.environment.values()))


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in (FOLDER / "across_hosts").iterdir()} == set(GROUPS)
