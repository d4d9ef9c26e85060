"""The host's own driver held against what a build was made with, where rigup.lock has none."""

from __future__ import annotations

import pytest

from rigup.catalogue.driver_versions import locked_driver
from rigup.errors import HostFailed
from rigup.facts.probe import Nvidia, Probe, ProbedGpu
from rigup.lock import Lock
from rigup.plan import Finding, Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.preflight.checks import preflight
from rigup.preflight.driver import driver_findings, too_old
from rigup.project.planning import plan_service
from roles.gpus import check_host
from tests.unit.planner.asking import FILE, catalogue

SMOL = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
LOCK = "let rigup install and hold 580.178.04: rigup lock --upgrade driver"


def planned(gpus: object = "RTX 3090", lock: Lock | None = None) -> Plan:
    rig = read_rig({"gpus": gpus, "host_memory_gib": 120}, FILE, catalogue())
    (service,) = read_services({"chat": SMOL}, FILE, rig)
    plan = plan_service("gpu1", "group", rig, service, catalogue(), lock or Lock())
    assert plan.verdict == "ok", plan.refusals
    return plan


def having(loaded: str, cuda: str = "", installed: str = "") -> Probe:
    card = ProbedGpu("NVIDIA GeForce RTX 3090", memory_total_mib=24576)
    return Probe(
        memory_kib=120 * 2**20, nvidia=Nvidia(loaded=loaded, installed=installed or loaded, cuda=cuda), gpus=(card,)
    )


def found(probe: Probe, plan: Plan) -> list[Finding]:
    return list(driver_findings((plan,), probe))


@pytest.mark.parametrize(
    ("loaded", "cuda"), [("580.65.06", "13.0"), ("590.48.01", "13.1"), ("610.43.02", "14.0"), ("580.95.05", "")]
)
def test_a_driver_of_the_builds_cuda_major_or_a_later_one_runs_it(loaded: str, cuda: str) -> None:
    assert found(having(loaded, cuda), planned()) == []


def test_an_older_one_is_refused_with_both_numbers_and_both_ways() -> None:
    (finding,) = found(having("570.133.20", "12.8"), planned())
    assert finding.message == (
        "driver 570.133.20 is loaded, which runs CUDA up to 12.8; "
        "llama.cpp b11434 is built with CUDA 13.0 and needs driver 580 or later"
    )
    assert finding.hint == f"{LOCK}; or reinstall the driver that this host had"
    assert finding in preflight(having("570.133.20", "12.8"), (planned(),), 0)


@pytest.mark.parametrize(("loaded", "cuda"), [("580.95.05", "12.9"), ("570.133.20", "")])
def test_either_number_is_enough(loaded: str, cuda: str) -> None:
    assert len(found(having(loaded, cuda), planned())) == 1


def test_two_services_of_one_build_are_told_of_once() -> None:
    assert len(list(driver_findings((planned(), planned()), having("570.133.20", "12.8")))) == 1


def test_none_at_all_is_refused() -> None:
    (finding,) = found(having(""), planned())
    assert finding.message == "no NVIDIA driver is loaded and rigup.lock pins none; this plan needs 580 or later"
    assert finding.hint == f"{LOCK}; or install one yourself"


def test_one_that_does_not_match_its_library_is_one_line() -> None:
    (finding,) = found(having("580.95.05", "", "580.178.04"), planned())
    assert (
        finding.message
        == "driver 580.95.05 is loaded but 580.178.04 is installed; CUDA programs cannot start until they match"
    )
    assert finding.hint == f"reboot the host; or {LOCK}"


def test_a_rig_that_came_with_its_driver_is_sent_to_its_maker() -> None:
    (finding,) = found(having("570.133.20", "12.8"), planned("GB10"))
    assert finding.hint == "update it with its maker's tools; or reinstall the driver that this host had"


def test_a_driver_that_rigup_installs_and_a_host_without_gpus_are_no_matter_of_this() -> None:
    assert found(having("570.133.20", "12.8"), planned(lock=Lock(driver=locked_driver("580.178.04")))) == []
    assert found(having(""), planned([])) == []


def test_a_driver_that_rigup_has_loaded_is_asked_once_more() -> None:
    plan = planned(lock=Lock(driver=locked_driver("580.178.04")))
    check_host((plan,), having("580.178.04", "13.0"))
    with pytest.raises(HostFailed) as caught:
        check_host((plan,), having("580.178.04", "12.8"))
    assert caught.value.message == too_old(plan, having("580.178.04", "12.8"))
    assert "which runs CUDA up to 12.8" in caught.value.message
