"""Services that take turns: what `rigup plan` prints, the router's command and presets, and the unit."""

from __future__ import annotations

import configparser
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rigup.cli.output.plan import show
from rigup.cli.output.plan_json import plan_as_json
from rigup.commands.swap_groups import as_groups, taking_turns
from rigup.lock import Lock
from rigup.operations.builds.source import name_of
from rigup.plan import Plan
from rigup.systemd.service import unit
from tests.golden.golden import assert_golden
from tests.nodes import unbound
from tests.terminal import Terminal
from tests.unit.planner.asking import NCCL, side_by_side

TURNS = {"swap": True}
SMALL = {"model": "SmolLM2-135M-Instruct", **TURNS}
LARGE = {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "context": 32768, "sampling": {"temperature": 0.6}, **TURNS}
GROUPS: dict[str, tuple[object, dict[str, dict[str, Any]]]] = {
    "on-gpus": ("4x RTX 3090", {"chat": LARGE, "small": {**SMALL, "flags": {"--no-context-shift": True}}}),
    "for-others": (
        [],
        {
            "first": {**SMALL, "listen": "0.0.0.0"},
            "second": {**SMALL, "listen": "0.0.0.0", "context": 2048, "served_name": "tiny:8b"},
        },
    ),
}


QUICK = {
    "first": {**SMALL, "quick_build": True},
    "second": {**SMALL, "quick_build": True, "context": 2048, "served_name": "tiny:8b"},
}


def members(name: str) -> tuple[Plan, ...]:
    gpus, services = GROUPS[name]
    return taking_turns(side_by_side(services, gpus, 128))


@pytest.mark.parametrize("name", GROUPS)
def test_plan(name: str) -> None:
    file, plans = Terminal(), members(name)
    show(plans, Console(file=file, width=80, highlight=False, color_system=None))
    assert_golden(f"swap/{name}.txt", file.getvalue())
    rows = {plan.service.name: plan_as_json(plan) for plan in plans}
    kept = {name: {key: row[key] for key in ("command", "environment", "swap")} for name, row in rows.items()}
    assert_golden(f"swap/{name}.json", json.dumps(kept, indent=1) + "\n")


def test_a_group_with_a_quick_build_has_one_and_says_so() -> None:
    plans = taking_turns(side_by_side(QUICK, [], 128))
    (whole,) = as_groups(plans)
    (whole_of_others,) = as_groups(members("for-others"))
    assert whole.build and whole_of_others.build
    assert [plan.build for plan in plans] == [whole.build] * 2
    own = {key: getattr(whole.build, key) for key in ("cmake", "flags", "targets")}
    assert whole.build == whole_of_others.build.model_copy(update=own)
    assert whole.build.cmake != whole_of_others.build.cmake
    assert name_of(whole.build, "x86_64", "debian 12") != name_of(whole_of_others.build, "x86_64", "debian 12")
    file = Terminal()
    show(plans, Console(file=file, width=80, highlight=False, color_system=None))
    assert_golden("swap/quick-build.txt", file.getvalue())


def test_a_group_with_one_that_cuts_layers_has_the_build_with_nccl() -> None:
    services = {"first": SMALL, "second": {**SMALL, "engine": "llama.cpp", "tensor_parallel": 2, "served_name": "cut"}}
    apart = side_by_side(services, "2x RTX 3090", 128, Lock(nccl=NCCL))
    assert [plan.build is not None and plan.build.own_library is not None for plan in apart] == [False, True]
    plans = taking_turns(apart)
    (whole,) = as_groups(plans)
    assert [plan.build for plan in (whole, *plans)] == [apart[1].build] * 3
    assert [("split-mode = tensor" in plan.swap.preset) for plan in plans if plan.swap] == [False, True]


@pytest.mark.parametrize("name", GROUPS)
def test_unit(name: str) -> None:
    (whole,) = as_groups(members(name))
    assert_golden(f"swap/{name}.service", unit(unbound(whole), "/opt/rigup/builds/engine-1-abc"))


@pytest.mark.parametrize("name", GROUPS)
def test_each_preset_has_the_options_of_the_service_alone(name: str) -> None:
    gpus, services = GROUPS[name]
    for plan in members(name):
        (alone,) = side_by_side({plan.service.name: {**services[plan.service.name], "swap": False}}, gpus, 128)
        assert plan.swap is not None
        presets = configparser.ConfigParser()
        presets.read_string(plan.swap.preset)
        given = dict(presets[plan.served_name])
        own = {"alias", "load-on-startup", "device"}
        router = ("--alias", "--host", "--port", "--threads-http", "--api-key-file")
        words = [word for word in alone.command[1:] if word.startswith("--") and word not in router]
        assert {f"--{key}" for key in given.keys() - own} == {*words} - {"--no-ui", "--offline"}
        for word, value in zip(alone.command, alone.command[1:], strict=False):
            if f"{word.lstrip('-')}" in given and not value.startswith("--"):
                assert given[word.lstrip("-")] == value


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_understands_every_line(name: str, tmp_path: Path) -> None:
    (whole,) = as_groups(members(name))
    program = tmp_path / whole.command[0]
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / "rigup-group.service"
    path.write_text(unit(unbound(whole), str(tmp_path)))
    said = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60)
    assert [line for line in said.stderr.splitlines() if "rigup-group" in line] == []
