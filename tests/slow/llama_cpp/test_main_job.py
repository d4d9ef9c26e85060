"""The main job with the pinned llama.cpp from source, compiled as a user's is, and a real model; the hub is a stand-in.

Its compile takes 22 minutes of processor. Quick builds, and what the default build is configured with, are tested in
every run: tests/slow/test_lab_whole.py, tests/slow/test_cuda_build.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.lab import demo_model
from tests.lab.fleet import Fleet
from tests.lab.fleet_fixtures import made_fleet

pytestmark = [pytest.mark.slow, pytest.mark.rare, pytest.mark.lab]
COLD_SECONDS = 2400


@pytest.fixture
def fleet(labs_can_run: None, tmp_path: Path) -> Iterator[Fleet]:
    """One bare machine, a hub with the demo's model, the toolkit's own lock, and this user's own cache of builds."""
    with made_fleet(Fleet, "main", tmp_path, demo_model.provide(), hosts=1) as fleet:
        fleet.describe()
        yield fleet


def test_a_bare_machine_becomes_a_real_model_that_knows_the_capital_of_france(fleet: Fleet) -> None:
    began = time.monotonic()
    first = fleet.apply(seconds=COLD_SECONDS)
    (result,) = first.json["hosts"]
    (answer,) = result["answers"]
    print(f"first apply: {time.monotonic() - began:.0f} s, {answer['tokens_per_second']} tokens/s: {answer['text']}")
    assert "Paris" in answer["text"]
    assert answer["tokens_per_second"] > 0

    second = fleet.apply()
    assert second.json["hosts"][0]["state"] == "unchanged"
    (row,) = fleet.rigup("status", "--json").json["services"]
    assert (row["health"], row["drift"]) == ("answers", "none")
