"""Which driver a rig gets, and what speaks against it."""

from __future__ import annotations

import pytest

from rigup.lock import Lock, LockedDriver
from rigup.plan import DriverPlan
from rigup.planner.driver import driver_plan, driver_refusals
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.rig import Rig
from tests.unit.planner.asking import FILE, catalogue, decided

LOCK = Lock(driver=LockedDriver(version="580.178.04", branch="580"))
OLD = Lock(driver=LockedDriver(version="570.86.15", branch="570"))


def rig(gpus: object) -> Rig:
    return read_rig({"gpus": gpus}, FILE, catalogue())


def planned(gpus: object, lock: Lock = LOCK, floor: int = 0) -> DriverPlan:
    plan = driver_plan(rig(gpus), lock, floor)
    assert plan is not None
    return plan


@pytest.mark.parametrize("gpus", ["4x RTX 3090", "2x RTX 5090", "8x B200", ["RTX 3090", "RTX 5090"]])
def test_every_known_card_gets_the_open_modules(gpus: object) -> None:
    assert planned(gpus).flavour == "open"


def test_a_card_from_before_turing_gets_the_proprietary_ones() -> None:
    card = rig("RTX 3090").gpus[0].model_copy(update={"compute_capability": "7.0", "name": "NVIDIA TITAN V"})
    plan = driver_plan(Rig(gpus=(card,)), LOCK)
    assert plan is not None and plan.flavour == "proprietary"


def test_a_card_without_open_modules_beside_one_that_needs_them_is_refused() -> None:
    old = rig("RTX 3090").gpus[0].model_copy(update={"compute_capability": "7.0", "name": "NVIDIA TITAN V"})
    mixed = Rig(gpus=(old, *rig("RTX 5090").gpus))
    (finding,) = driver_refusals(mixed, driver_plan(mixed, LOCK))
    assert finding.rule == "driver-flavour"
    assert (
        "NVIDIA GeForce RTX 5090 needs the open kernel modules, but NVIDIA TITAN V does not support them"
        in finding.message
    )


def test_switches_of_the_newest_link_are_managed_too() -> None:
    plan = planned("8x B200")
    assert (plan.fabric_manager, plan.subnet_manager) == (True, True)
    plan = planned("4x RTX 3090")
    assert (plan.fabric_manager, plan.subnet_manager) == (False, False)


@pytest.mark.parametrize(("gpus", "lock"), [([], LOCK), ("GB10", LOCK), ("4x RTX 3090", Lock())])
def test_where_rigup_leaves_the_driver_alone(gpus: object, lock: Lock) -> None:
    assert driver_plan(rig(gpus), lock) is None


def test_the_floor_is_the_higher_of_the_engines_and_the_cards() -> None:
    assert planned("RTX 5090", floor=525).floor == 570
    assert planned("RTX 5090", floor=580).floor == 580
    assert planned("RTX 3090").floor == 455


def test_a_locked_driver_below_the_floor_is_refused_and_both_ways_are_named() -> None:
    service = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
    refused = decided("RTX 3090", service, lock=OLD)
    (finding,) = refused.refusals
    assert finding.rule == "driver-too-old"
    assert finding.message == "rigup.lock pins driver 570.86.15, but the engine and GPUs need 580 or later"
    assert "rigup lock --upgrade driver=580" in finding.hint and "engine version" in finding.hint
    assert decided("RTX 3090", service, lock=LOCK).driver == planned("RTX 3090", floor=580)
    assert decided([], service, lock=OLD).verdict == "ok"
