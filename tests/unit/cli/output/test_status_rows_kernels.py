"""What `rigup status` says of tuned kernels: a column where a service has them, drift where it finds none."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from rigup.cli.output.status_rows import with_kernels
from rigup.cli.status import table
from rigup.plan import MoeFolder, Plan

FOLDER = MoeFolder(path="/etc/rigup/moe_configs/vllm-1", files={"a.json": "{}"})
ROW = {"host": "a.lan", "service": "chat", "health": "answers", "drift": "none"}


def told(folder: MoeFolder | None, said: str | None, **row: Any) -> dict[str, Any]:
    return with_kernels({**ROW, **row}, Plan.model_construct(moe_folder=folder), said)


@pytest.mark.parametrize(
    ("folder", "said", "drift"),
    [
        (FOLDER, "ours", "none"),
        (FOLDER, "default (slower)", "moe config"),
        (FOLDER, "ours and default (slower)", "moe config"),
        (FOLDER, "not said", "none"),
        (None, "default (slower)", "none"),
        (None, "engine's", "none"),
        (FOLDER, None, "none"),
    ],
)
def test_kernels_that_were_given_and_not_found_are_drift(
    folder: MoeFolder | None, said: str | None, drift: str
) -> None:
    found = told(folder, said)
    assert (found["moe_config"], found["drift"]) == (said, drift)


def test_it_is_named_beside_what_else_drifted() -> None:
    assert told(FOLDER, "default (slower)", drift="driver")["drift"] == "driver, moe config"


def shown(*rows: dict[str, Any]) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=160).print(table(list(rows)))
    return file.getvalue().splitlines()


def test_the_table_has_a_column_for_it_where_some_service_has_one() -> None:
    lines = shown(told(FOLDER, "ours"), told(None, None))
    assert "moe config" in lines[0]
    assert "ours" in lines[1]
    assert "moe config" not in shown(told(None, None))[0]
