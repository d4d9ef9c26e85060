"""Planning stays fast: how many candidates it works out, and processor time far above what it takes.

`benchmarks/plan.py` has the limits of an idle machine: a second for every model on a rig, half of one for the examples.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.lock import Lock
from rigup.planner import survey
from rigup.planner.attempts import fit_memory
from rigup.planner.candidate import Candidate
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.planner.memory.fit import Shortfall
from rigup.project.fit_table import fits_of
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from tests.hostile import bounded

CATALOGUE = load_catalogue()
EXAMPLES = Path(__file__).parents[3] / "inventories" / "seeds.py"
MARGIN = 5
"""A machine that is busy with other tests works through slower caches."""


@pytest.mark.parametrize("gpus", ["2x RTX 3090", "8x H200"])
def test_every_model_on_a_rig(monkeypatch: pytest.MonkeyPatch, gpus: str) -> None:
    rig = read_rig({"gpus": gpus, "host_memory_gib": 256}, "test", CATALOGUE)
    worked_out: list[Candidate] = []

    def counted(candidate: Candidate) -> Candidate | Shortfall:
        worked_out.append(candidate)
        return fit_memory(candidate)

    monkeypatch.setattr(survey, "fit_memory", counted)
    with bounded(MARGIN * 1.0):
        found = fits_of(rig, CATALOGUE, Lock())
    assert len(found) == len(CATALOGUE.served) >= 33
    assert len(worked_out) <= 80 * len(found), "each model is tried in more ways than before"


def test_the_example_systems() -> None:
    with bounded(MARGIN * 0.5):
        assert len(plan_project(load_project(str(EXAMPLES)))) >= 30
