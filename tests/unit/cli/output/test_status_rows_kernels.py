"""What `rigup status` says of kernels: columns where a log names them, drift where one lacks what a plan counts on."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from rigup.cli.output.status_rows import with_kernels
from rigup.cli.status import table
from rigup.facts.engine_kernels import LEFT_OUT
from rigup.plan import Build, MoeConfig, MoeFolder, Plan

FOLDER = MoeFolder(path="/etc/rigup/moe_configs/vllm-1", files={"a.json": "{}"})
OURS = f"Using configuration from {FOLDER.path}/a.json for MoE layer."
ENGINES = "Using configuration from /opt/b.json for MoE layer."
DEFAULT = "Using default MoE config. Performance might be sub-optimal!"
ROW = {"host": "a.lan", "service": "chat", "health": "answers", "drift": "none"}


def told(folder: MoeFolder | None, *logged: str, method: str = "image", **row: Any) -> dict[str, Any]:
    build = Build.model_construct(method=method)
    plan = Plan.model_construct(moe_folder=folder, moe_config=MoeConfig.model_construct(), build=build)
    return with_kernels({**ROW, **row}, plan, list(logged))


@pytest.mark.parametrize(
    ("folder", "logged", "said", "drift"),
    [
        (FOLDER, [OURS], "ours", "none"),
        (FOLDER, [DEFAULT], "default (slower)", "moe config"),
        (FOLDER, [OURS, DEFAULT], "ours and default (slower)", "moe config"),
        (FOLDER, [], "not said", "none"),
        (None, [DEFAULT], "default (slower)", "none"),
        (None, [ENGINES], "engine's", "none"),
    ],
)
def test_kernels_that_were_given_and_not_found_are_drift(
    folder: MoeFolder | None, logged: list[str], said: str, drift: str
) -> None:
    found = told(folder, *logged)
    assert (found["moe_config"], found["drift"]) == (said, drift)


def test_without_a_log_nothing_is_said() -> None:
    plan = Plan.model_construct(moe_folder=FOLDER, moe_config=MoeConfig.model_construct())
    assert with_kernels(ROW, plan, None) == {**ROW, "moe_config": None, "kernels": {}}


def test_it_is_named_beside_what_else_drifted() -> None:
    assert told(FOLDER, DEFAULT, drift="driver")["drift"] == "driver, moe config"


def test_what_an_engine_left_out_is_drift_where_the_plan_brings_what_it_needs() -> None:
    off = next(words for words, what in LEFT_OUT.items() if what == "FlashInfer")
    assert told(None, off)["drift"] == "without FlashInfer"
    assert told(None, off, method="wheel")["drift"] == "none", "an environment for CUDA 12 has no compiler"


def shown(*rows: dict[str, Any]) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=160).print(table(list(rows)))
    return file.getvalue().splitlines()


def test_the_table_has_a_column_for_it_where_some_service_has_one() -> None:
    lines = shown(told(FOLDER, OURS, "Using FLASH_ATTN attention backend out of 3"), ROW)
    assert "moe config" in lines[0] and "kernels" in lines[0]
    assert "ours" in lines[1] and "FLASH_ATTN" in lines[1]
    assert "moe config" not in shown(ROW)[0] and "kernels" not in shown(ROW)[0]
