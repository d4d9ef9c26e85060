"""What bench and eval tell of what they found when it cannot be kept: all of it, and why, to people and to scripts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rigup.cli.output.console import Console
from rigup.cli.sessions import service_run
from rigup.errors import HostFailed, InputError, RigupError, Unreachable
from rigup.run.result import HostResult, State


@pytest.mark.parametrize("as_json", [True, False])
def test_one_result_that_cannot_be_kept_costs_no_other(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    tried: list[int] = []

    def keep(one: dict[str, Any]) -> Path:
        tried.append(one["number"])
        if one["number"] != 2:
            raise InputError("results: No space left on device", "make room")
        return Path("results/2.json")

    said = io.StringIO()
    console = Console(file=said, width=160)
    found = [{"number": number} for number in (1, 2, 3)]
    assert service_run.store_and_show(found, [], lambda one, console: console.print(one), keep, console, as_json) == 2
    assert tried == [1, 2, 3]
    assert said.getvalue() == "{'number': 1}\n{'number': 2}\n{'number': 3}\nstored in results/2.json\n"
    out, err = capsys.readouterr()
    assert err == "rigup: results: No space left on device\nhint: make room\n"
    assert bool(out) == as_json
    if as_json:
        files = [(one["number"], one["file"]) for one in json.loads(out)["results"]]
        assert files == [(1, None), (2, "results/2.json"), (3, None)]


def test_where_all_was_kept_nothing_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO())
    assert service_run.store_and_show([{}], [], lambda *_: None, lambda one: Path("a.json"), console, True) == 0
    assert capsys.readouterr() == (
        '{\n "schema": 1,\n "results": [\n  {\n   "file": "a.json"\n  }\n ],\n "failed": []\n}\n',
        "",
    )


@pytest.mark.parametrize(
    ("states", "found", "code"),
    [
        ([("unchanged", None)], 1, 0),
        ([("failed", InputError("an unknown task"))], 0, 2),
        ([("failed", Unreachable("nothing listens"))], 0, 2),
        ([("failed", HostFailed("the harness ended with 1"))], 0, 1),
        ([("failed", InputError("a wrong key")), ("unchanged", None)], 1, 1),
        ([("failed", InputError("a wrong key")), ("failed", HostFailed("it crashed"))], 0, 1),
        ([("cancelled", RigupError("stopped"))], 0, 130),
    ],
)
def test_how_it_ends(states: list[tuple[State, RigupError | None]], found: int, code: int) -> None:
    results = [HostResult(f"h{n}", state, errors=[error] if error else []) for n, (state, error) in enumerate(states)]
    assert service_run.ended([{}] * found, results) == code
