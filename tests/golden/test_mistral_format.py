"""A checkpoint in Mistral's own format: what `rigup plan` prints for each engine that reads it, with the command."""

from __future__ import annotations

import pytest
from rich.console import Console

from rigup.catalogue.option_names import known_options
from rigup.cli.output.plan import show
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from tests.golden.golden import assert_golden
from tests.terminal import Terminal
from tests.unit.planner.asking import FILE, catalogue

SERVICE = {"checkpoint": "mistralai/Mistral-Small-4-119B-2603", "context": 65_536, "tools": True, "reasoning": True}


def planned(engine: str) -> Plan:
    rig = read_rig({"gpus": "2x H200"}, FILE, catalogue())
    (wanted,) = read_services({"chat": {**SERVICE, "engine": engine}}, FILE, rig)
    return plan_service("host", "group", rig, wanted, catalogue(), Lock())


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_text(engine: str) -> None:
    file = Terminal()
    show((planned(engine),), Console(file=file, width=80, highlight=False, color_system=None))
    assert_golden(f"mistral_format/{engine}.txt", file.getvalue())


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_option_is_known_to_the_pinned_engine(engine: str) -> None:
    plan = planned(engine)
    assert plan.build is not None
    options = {word for word in plan.command if word.startswith("--")}
    assert options <= known_options(plan.build.engine, plan.build.version)
