"""Which driver a rig gets, and what speaks against it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from rigup.catalogue.driver_versions import locked_driver, nvidia_versions
from rigup.lock import Lock, LockedDriver
from rigup.plan import DriverPlan, MadeFor
from rigup.planner.decide import decide
from rigup.planner.decision import Decision, Refusal
from rigup.planner.driver import (
    branch_warnings,
    driver_for,
    driver_plan,
    driver_refusals,
    repository_refusals,
    toolkit_for,
    toolkit_warnings,
)
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.rig import Rig
from tests.unit.planner.asking import FILE, catalogue, decided, decision, request

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


AUTUMN = date(2026, 11, 23)


def locked(version: str) -> DriverPlan:
    return planned("4x RTX 3090", Lock(driver=LockedDriver(version=version, branch=version.partition(".")[0])))


@pytest.mark.parametrize(
    ("version", "today", "message"),
    [
        ("610.57.04", AUTUMN, "NVIDIA's support of driver branch 610 (new feature) ended in August 2026"),
        ("590.48.01", AUTUMN, "NVIDIA's support of driver branch 590 (new feature) ended"),
        ("595.91.07", date(2027, 1, 2), "NVIDIA's support of driver branch 595 (production) ends in March 2027"),
        ("595.91.07", date(2027, 3, 31), "NVIDIA's support of driver branch 595 (production) ends in March 2027"),
        ("595.91.07", date(2027, 4, 1), "NVIDIA's support of driver branch 595 (production) ended in March 2027"),
    ],
)
def test_a_branch_near_its_end_is_warned_of(version: str, today: date, message: str) -> None:
    (finding,) = branch_warnings(rig("4x RTX 3090"), locked(version), today)
    assert finding.message == message
    assert finding.hint == "run rigup lock --upgrade driver=580 (long-term support, supported until June 2028)"


@pytest.mark.parametrize(("version", "today"), [("580.178.04", AUTUMN), ("595.91.07", AUTUMN), ("900.1", AUTUMN)])
def test_nothing_is_said_about_a_branch_with_time_left_or_an_unknown_one(version: str, today: date) -> None:
    assert list(branch_warnings(rig("4x RTX 3090"), locked(version), today)) == []
    assert list(branch_warnings(rig([]), None, today)) == []


def test_the_branch_to_move_to_is_one_that_the_system_and_the_plan_can_use() -> None:
    new = read_rig({"gpus": "RTX 3090", "os": "ubuntu-26.04"}, FILE, catalogue())
    (finding,) = branch_warnings(new, locked("610.57.04"), AUTUMN)
    assert finding.hint == "run rigup lock --upgrade driver=595 (production, supported until March 2027)"
    above = locked("610.57.04").model_copy(update={"floor": 600})
    (finding,) = branch_warnings(new, above, AUTUMN)
    assert finding.hint == ""


def test_a_card_that_a_branch_no_longer_drives_is_refused() -> None:
    card = rig("RTX 3090").gpus[0].model_copy(update={"compute_capability": "7.0", "name": "NVIDIA TITAN V"})
    old = Rig(gpus=(card,))
    newer = Lock(driver=LockedDriver(version="595.91.07", branch="595"))
    (finding,) = driver_refusals(old, driver_plan(old, newer))
    assert finding.message == (
        "rigup.lock pins driver 595.91.07, but branch 595 drives cards from compute capability 7.5 on, and "
        "NVIDIA TITAN V has 7.0"
    )
    assert list(driver_refusals(old, driver_plan(old, LOCK))) == []


def test_a_system_whose_repository_lacks_what_the_lock_pins_is_refused() -> None:
    found = repository_refusals("ubuntu-26.04", planned("4x RTX 3090"), "13.0.2")
    assert [(one.message, one.hint) for one in found] == [
        (
            "NVIDIA's repository for ubuntu-26.04 has no driver before branch 595; rigup.lock pins 580.178.04",
            "run rigup lock --upgrade driver=595",
        ),
        (
            "NVIDIA's repository for ubuntu-26.04 has no CUDA toolkit before 13.3; rigup.lock pins 13.0.2",
            "run rigup lock --upgrade cuda-toolkit=13.3",
        ),
    ]
    assert list(repository_refusals("ubuntu-26.04", locked("595.91.07"), "13.3.1")) == []
    assert list(repository_refusals("ubuntu-26.04", None, None)) == []
    assert list(repository_refusals("ubuntu-24.04", planned("4x RTX 3090"), "13.0.2")) == []


def test_a_service_on_a_system_that_begins_later_is_refused_until_the_lock_moves() -> None:
    lock = LOCK.model_copy(update={"cuda_toolkit": nvidia_versions().cuda_toolkit()})
    asked = request("RTX 3090", {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}, lock=lock)
    asked = replace(asked, rig=asked.rig.model_copy(update={"os": "ubuntu-26.04"}))
    refusal = decide(asked)
    assert isinstance(refusal, Refusal)
    assert [finding.rule for finding in refusal.findings] == ["driver-repository"] * 2
    systems = ("ubuntu-24.04", "ubuntu-26.04")
    newer = Lock(driver=driver_for(systems, lock.driver), cuda_toolkit=toolkit_for(systems, lock.cuda_toolkit))
    found = decide(replace(asked, lock=newer))
    assert isinstance(found, Decision) and "cuda-toolkit-13-3" in found.build.pinned_packages


def test_a_lock_keeps_what_every_system_has() -> None:
    kept, toolkit = locked_driver("610.43.02"), nvidia_versions().cuda_toolkit("13.4")
    assert driver_for(["ubuntu-26.04"], kept) == kept
    assert toolkit_for(["ubuntu-26.04"], toolkit) == toolkit
    assert driver_for(["debian-12"], None) == driver_for([], None) == LOCK.driver
    assert toolkit_for([], None) == nvidia_versions().cuda_toolkit()


def test_what_is_known_of_the_branch_is_shown_with_its_source() -> None:
    plan = decided("RTX 3090", {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}, lock=LOCK)
    shown = {one.figure: one for one in plan.figures if one.subject == "driver branch 580"}
    assert shown["support"].value == "long-term support, supported until June 2028"
    assert shown["CUDA"].value == "came with CUDA 13.0, runs builds of every CUDA 13"
    assert "docs.nvidia.com" in shown["support"].source


def test_a_build_with_a_faulty_cuda_is_warned_of_and_no_other() -> None:
    asked = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
    plans = {
        series: decided("RTX 3090", asked, lock=Lock(cuda_toolkit=nvidia_versions().cuda_toolkit(series)))
        for series in ("13.1", "13.2", "13.3")
    }
    found = {series: [one for one in plan.warnings if one.rule == "cuda-fault"] for series, plan in plans.items()}
    assert (found["13.1"], found["13.3"]) == ([], [])
    (warning,) = found["13.2"]
    assert warning.message.startswith("the build uses CUDA 13.2.1: cublasLtMatmul() of its cuBLAS can ignore")
    assert warning.hint == "run rigup lock --upgrade cuda-toolkit=13.3"
    assert "docs.nvidia.com/cuda/archive/13.2.1" in warning.source


def test_a_wheel_for_a_faulty_cuda_brings_its_libraries() -> None:
    build = decision("RTX 3090", {"model": "gpt-oss-20b", "engine": "vllm"}).build
    assert list(toolkit_warnings(build)) == []
    (warning,) = toolkit_warnings(build.model_copy(update={"made_for": MadeFor(cuda="13.2")}))
    assert warning.hint == "choose an engine version for another CUDA"
