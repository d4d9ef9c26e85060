"""The main job with the pinned llama.cpp from source and a real model; only the hub is a stand-in."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.cache import cache_folder
from rigup.errors import MissingTool
from rigup.lab import demo_model, prerequisites
from rigup.lab.hub import Hub
from rigup.lab.lab import Lab
from tests.lab.fleet import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.lab]
COLD_SECONDS = 2400


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """One bare machine, a hub with the demo's model, the toolkit's own lock, and this user's own cache of builds."""
    try:
        prerequisites.check()
    except MissingTool as missing:
        if os.environ.get("RIGUP_REQUIRE_LAB") == "1":
            raise
        pytest.skip(missing.message)
    lab = Lab.up(f"main{os.getpid()}", hosts=1)
    try:
        hub = Hub.start(demo_model.provide(), lab=lab.record.name)
        fleet = Fleet(lab, hub, tmp_path, cache_folder().parent)
        fleet.describe()
        yield fleet
        for run in fleet.runs:
            if run.process.poll() is None:
                run.kill()
    finally:
        lab.down()


def test_a_bare_machine_becomes_a_real_model_that_knows_the_capital_of_france(fleet: Fleet) -> None:
    began = time.monotonic()
    first = fleet.start("apply", "--yes", "--json")
    assert first.wait(COLD_SECONDS) == 0, first.text
    (result,) = first.json["hosts"]
    (answer,) = result["answers"]
    print(f"first apply: {time.monotonic() - began:.0f} s, {answer['tokens_per_second']} tokens/s: {answer['text']}")
    assert "Paris" in answer["text"]
    assert answer["tokens_per_second"] > 0

    second = fleet.apply()
    assert second.json["hosts"][0]["state"] == "unchanged"
    (row,) = fleet.rigup("status", "--json").json["services"]
    assert (row["health"], row["drift"]) == ("answers", "none")
