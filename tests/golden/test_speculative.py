"""Speculative decoding on each engine: what `rigup plan` prints, with the command, word by word."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from rigup.catalogue.option_names import known_options
from rigup.cli.output.plan import show
from tests.golden.golden import assert_golden
from tests.unit.planner.asking import decided

QWEN = {"checkpoint": "Qwen/Qwen3.6-27B-FP8", "context": 65_536}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mtp_vllm": ("2x H100 80GB HBM3", {**QWEN, "engine": "vllm", "speculative": "mtp"}),
    "mtp_sglang": ("2x H100 80GB HBM3", {**QWEN, "engine": "sglang", "speculative": {"kind": "mtp", "tokens": 2}}),
    "mtp_offered": ("2x H100 80GB HBM3", {**QWEN, "engine": "vllm"}),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_text(name: str) -> None:
    gpus, service = SYSTEMS[name]
    file = io.StringIO()
    show((decided(gpus, service),), Console(file=file, width=80, highlight=False))
    assert_golden(f"speculative/{name}.txt", file.getvalue())


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_option_is_known_to_the_pinned_engine(name: str) -> None:
    plan = decided(*SYSTEMS[name])
    assert plan.verdict == "ok", plan.refusals
    assert plan.build is not None
    options = {word for word in plan.command if word.startswith("--")}
    assert options - known_options(plan.build.engine, plan.build.version) == set()
    assert any("spec" in option for option in options) == ("speculative" in SYSTEMS[name][1])
