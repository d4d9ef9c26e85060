"""The host's own driver held against what a build was made with, where rigup.lock has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.catalogue.driver_versions import locked_driver
from rigup.errors import HostFailed
from rigup.facts.probe import Nvidia, Probe, ProbedGpu
from rigup.lock import Lock
from rigup.plan import Finding, Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.preflight.checks import preflight
from rigup.preflight.driver import driver_findings, managed_driver, too_old
from rigup.project.planning import plan_service
from roles.gpus import check_host
from tests.unit.planner.asking import FILE, catalogue

SMOL = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
HOLD = "let rigup install and hold"
LOCK = f"{HOLD} 580.178.04: rigup lock --upgrade driver"
UNKEPT = f'{HOLD} the lock\'s: remove driver = "keep"'
BACK = "or reinstall the driver that this host had"
INSTALL = "or install one yourself"


def planned(gpus: object = "RTX 3090", lock: Lock | None = None, keep: bool = False) -> Plan:
    rig = read_rig({"gpus": gpus, "host_memory_gib": 120}, FILE, catalogue()).model_copy(update={"keep_driver": keep})
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


def old(loaded: str, cuda: str) -> str:
    return (
        f"driver {loaded} is loaded, which runs CUDA up to {cuda}; "
        "llama.cpp b11434 is built with CUDA 13.0 and needs driver 580 or later"
    )


def without(why: str) -> str:
    return f"no NVIDIA driver is loaded, and {why}; this plan needs 580 or later"


@pytest.mark.parametrize(
    ("loaded", "cuda"), [("580.65.06", "13.0"), ("590.48.01", "13.1"), ("610.43.02", "14.0"), ("580.95.05", "")]
)
def test_a_driver_of_the_builds_cuda_major_or_a_later_one_runs_it(loaded: str, cuda: str) -> None:
    assert found(having(loaded, cuda), planned()) == []


def test_an_older_one_is_refused_with_both_numbers_and_both_ways() -> None:
    (finding,) = found(having("570.133.20", "12.8"), planned())
    assert finding.message == old("570.133.20", "12.8")
    assert finding.hint == f"{LOCK}; {BACK}"
    assert finding in preflight(having("570.133.20", "12.8"), (planned(),), 0)


@pytest.mark.parametrize(("loaded", "cuda"), [("580.95.05", "12.9"), ("570.133.20", "")])
def test_either_number_is_enough(loaded: str, cuda: str) -> None:
    assert len(found(having(loaded, cuda), planned())) == 1


def test_two_services_of_one_build_are_told_of_once() -> None:
    assert len(list(driver_findings((planned(), planned()), having("570.133.20", "12.8")))) == 1


def test_none_at_all_is_refused() -> None:
    (finding,) = found(having(""), planned())
    assert finding.message == without("rigup.lock pins none")
    assert finding.hint == f"{LOCK}; {INSTALL}"


def test_one_that_does_not_match_its_library_is_one_line() -> None:
    (finding,) = found(having("580.95.05", "", "580.178.04"), planned())
    assert (
        finding.message
        == "driver 580.95.05 is loaded but 580.178.04 is installed; CUDA programs cannot start until they match"
    )
    assert finding.hint == f"reboot the host; or {LOCK}"


def test_no_reboot_is_advised_into_a_kernel_without_the_driver() -> None:
    kernels = {"kernel": "6.1.0-40-amd64", "kernels": ("6.1.0-40-amd64", "6.1.0-41-amd64")}
    (finding,) = found(replace(having("580.95.05", "", "580.178.04"), **kernels), planned())
    assert finding.hint.startswith("do not reboot yet, kernel 6.1.0-41-amd64 has ")
    assert finding.hint.endswith(f"; or {LOCK}")


def test_a_rig_that_came_with_its_driver_is_sent_to_its_maker() -> None:
    (finding,) = found(having("570.133.20", "12.8"), planned("GB10"))
    assert finding.hint == f"update it with its maker's tools; {BACK}"


def test_a_driver_that_rigup_installs_and_a_host_without_gpus_do_not_matter_here() -> None:
    packages = {"libnvidia-ml1": "570.133.20-1"}
    assert (
        found(with_nvidia(loaded="570.133.20", installed="570.133.20", packages=packages), planned(lock=PINNED)) == []
    )
    assert found(having(""), planned([])) == []


PINNED = Lock(driver=locked_driver("580.178.04"))


def test_a_kept_driver_stays_if_it_is_new_enough_and_is_refused_with_both_numbers_if_not() -> None:
    plan = planned(lock=PINNED, keep=True)
    assert plan.driver is None
    assert found(having("590.48.01", "13.1"), plan) == []
    (finding,) = found(having("550.163.01", "12.4"), plan)
    assert (finding.message, finding.hint) == (old("550.163.01", "12.4"), f"{UNKEPT}; {BACK}")
    (finding,) = found(having(""), plan)
    assert finding.message == without('rigup installs none with driver = "keep"')
    assert finding.hint == f"{UNKEPT}; {INSTALL}"


def with_nvidia(**values: Any) -> Probe:
    return replace(having(""), nvidia=Nvidia(**values), architecture="x86_64")


def test_a_data_centre_image_keeps_its_driver() -> None:
    plan = planned(lock=PINNED)
    assert plan.driver is not None
    assert managed_driver(plan, with_nvidia(image="DGX OS 7.2.1")) is None
    assert managed_driver(plan, having("")) == plan.driver
    assert found(with_nvidia(loaded="580.95.05", installed="580.95.05", image="DGX OS 7.2.1"), plan) == []
    (finding,) = found(with_nvidia(loaded="570.86.15", installed="570.86.15", image="Lambda Stack"), plan)
    assert finding.hint == f"update it as Lambda Stack does; {BACK}"
    (finding,) = found(with_nvidia(image="DGX OS 7.2.1"), plan)
    assert finding.message == without("rigup does not change the driver of DGX OS 7.2.1")


@pytest.mark.parametrize(
    ("nvidia", "message", "command"),
    [
        (
            {"installed": "575.64.05", "installer": True},
            "driver 575.64.05 belongs to no package: NVIDIA's .run installer installed it",
            "nvidia-uninstall",
        ),
        (
            {"installed": "575.64.05", "packages": {"libnvidia-ml1": "550.163.01-2"}},
            "driver 575.64.05 belongs to no package: NVIDIA's .run installer installed it, but its uninstaller is gone",
            "sh NVIDIA-Linux-x86_64-575.64.05.run --uninstall",
        ),
    ],
)
def test_a_driver_of_no_package_is_refused_with_the_way_to_remove_it(
    nvidia: dict[str, Any], message: str, command: str
) -> None:
    (finding,) = found(with_nvidia(**nvidia), planned(lock=PINNED))
    assert finding.message == message
    assert finding.hint == f'on the host: {command}; or keep it: driver = "keep" in group_data'
    assert found(with_nvidia(**{**nvidia, "installed": "590.48.01"}, loaded="590.48.01", cuda="13.1"), planned()) == []


def test_a_host_whose_repository_lacks_the_locks_driver_is_refused() -> None:
    host = replace(with_nvidia(), os="ubuntu-26.04")
    (finding,) = [one for one in preflight(host, (planned(lock=PINNED),), 0) if one.rule == "host-driver"]
    assert "595" in finding.message and finding.hint == "run rigup lock --upgrade driver=595"


@pytest.mark.parametrize("where", ["packages", "unconfigured"])
def test_an_uninstaller_that_was_left_beside_packages_does_not_matter(where: str) -> None:
    there = with_nvidia(installed="550.163.01", installer=True, **{where: {"libnvidia-ml1": "550.163.01-2"}})
    assert found(there, planned(lock=PINNED)) == []


def test_a_driver_that_rigup_has_loaded_is_asked_once_more() -> None:
    plan = planned(lock=Lock(driver=locked_driver("580.178.04")))
    check_host((plan,), having("580.178.04", "13.0"))
    with pytest.raises(HostFailed) as caught:
        check_host((plan,), having("580.178.04", "12.8"))
    assert caught.value.message == too_old(plan, having("580.178.04", "12.8"))
