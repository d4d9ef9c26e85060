"""Speculative decoding on each engine: what `rigup plan` prints, with the command, word by word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from tests.unit.planner.drafts import small, small_model

QWEN = {"checkpoint": "Qwen/Qwen3.6-27B-FP8", "context": 65_536}
QWEN_235B = {
    "model": "Qwen3-235B-A22B-Instruct-2507",
    "context": 32_768,
    "speculative": {"kind": "draft", "model": "Qwen3-0.6B"},
}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mtp_vllm": ("2x H100 80GB HBM3", {**QWEN, "engine": "vllm", "speculative": "mtp"}),
    "mtp_sglang": ("2x H100 80GB HBM3", {**QWEN, "engine": "sglang", "speculative": {"kind": "mtp", "tokens": 2}}),
    "draft_vllm": ("8x H200", {**QWEN_235B, "engine": "vllm"}),
    "draft_sglang": ("8x H200", {**QWEN_235B, "engine": "sglang"}),
    "draft_llama_cpp": ("4x H200", {**QWEN_235B, "engine": "llama.cpp", "quant": "Q8_0"}),
    "mtp_offered": ("2x H100 80GB HBM3", {**QWEN, "engine": "vllm"}),
}


def planned(name: str) -> Plan:
    """The plan of a system, from a catalogue that has a small model as well."""
    toolkit, (gpus, service) = catalogue(), SYSTEMS[name]
    own = replace(
        toolkit,
        models=(*toolkit.models, small_model()),
        checkpoints=(*toolkit.checkpoints, small(), small("gguf", entry="Qwen3-0.6B-Q8_0.gguf")),
    )
    rig = read_rig({"gpus": gpus}, FILE, own)
    (wanted,) = read_services({"chat": service}, FILE, rig)
    return plan_service("host", "group", rig, wanted, own, Lock())


@pytest.mark.parametrize("name", SYSTEMS)
def test_text(name: str) -> None:
    file = Terminal()
    show((planned(name),), Console(file=file, width=80, highlight=False, color_system=None))
    assert_golden(f"speculative/{name}.txt", file.getvalue())


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_option_is_known_to_the_pinned_engine(name: str) -> None:
    plan = planned(name)
    assert plan.verdict == "ok", plan.refusals
    assert plan.build is not None
    options = {word for word in plan.command if word.startswith("--")}
    assert options - known_options(plan.build.engine, plan.build.version) == set()
    assert any("spec" in option for option in options) == ("speculative" in SYSTEMS[name][1])
