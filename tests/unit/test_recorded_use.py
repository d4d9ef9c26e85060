"""A test on machines names each subject that it uses beyond the road that every apply takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorded_use import ROADS, VARIABLE, main, recorded, unnamed

ROOT = Path(__file__).parents[2]
DRAIN = "src/rigup/run/gateways/drains.py drained"
FETCH = "src/rigup/operations/weights/checkpoint.py _fetch"
IT = "tests/lab/test_it.py"
TEST = f"{IT}::test_that_plans"


@pytest.mark.parametrize(
    ("used", "named", "found"),
    [
        ({DRAIN}, {"the run"}, [(IT, "gateways", [DRAIN])]),
        ({DRAIN}, {"gateways"}, []),
        ({DRAIN}, {"src/rigup/run/gateways/drains.py"}, []),
        ({DRAIN}, {"the toolkit"}, []),
        ({FETCH}, {"the run"}, []),
        ({"src/rigup/planner/decide.py decide"}, {"the run"}, []),
    ],
)
def test_what_a_test_uses_beyond_the_road_has_a_name(
    used: set[str], named: set[str], found: list[tuple[str, str, list[str]]]
) -> None:
    for road in ROADS:
        assert list(unnamed({TEST: used, f"{road}::test": {FETCH}}, {TEST: named})) == found


def test_what_a_test_that_names_the_subject_runs_as_well_needs_no_name() -> None:
    other = "tests/lab/test_gateways.py::test_that_drains"
    use, names = {TEST: {DRAIN}, other: {DRAIN}}, {TEST: {"the run"}, other: {"gateways"}}
    assert list(unnamed(use, names)) == []
    use[other] = set()
    assert list(unnamed(use, names)) == [(IT, "gateways", [DRAIN])]


def test_the_recorder_writes_down_what_a_program_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {**os.environ, VARIABLE: str(tmp_path), "PYTHONPATH": str(ROOT / "tests/recording")}
    environment["PYTEST_CURRENT_TEST"] = f"{TEST} (call)"
    words = [sys.executable, "-c", "from rigup.gateway.responses import error; error(429)"]
    subprocess.run(words, env=environment, capture_output=True, check=True)
    assert "src/rigup/gateway/responses.py error" in recorded(tmp_path)[TEST]
    (tmp_path / "named").write_text(f"{TEST}\tweights\n")
    assert main([str(tmp_path)]) == 1
    assert f'{IT}: uses "gateways" and does not name it: src/rigup/gateway/' in capsys.readouterr().out
    (tmp_path / "named").write_text(f"{TEST}\tgateways\n")
    assert main([str(tmp_path)]) == 0
