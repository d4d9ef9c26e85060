"""What is wrong with a host's driver, in one line; and nothing where it is as planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.facts.probe import BuiltFor, Nvidia, Probe
from rigup.operations.driver.state import (
    booting_kernel,
    loading_problem,
    package_problem,
    stuck_packages,
    unpinned_packages,
    unsuited_build,
)
from rigup.plan import Build, DriverPlan, MadeFor
from rigup.planner.driver_packages import driver_packages

KERNEL = "6.1.0-25-amd64"
BELOW = "is installed, below 580, which this plan needs"
PLAN = DriverPlan(version="580.178.04", branch="580", flavour="open", floor=580)
PACKAGES = driver_packages(PLAN, "debian-12", "x86_64", KERNEL, nvswitches=0)
THERE = {
    "nvidia-open": "580.178.04-1",
    "nvidia-driver-cuda": "580.178.04-1",
    "nvidia-persistenced": "580.178.04-1",
    "nvidia-driver-pinning-580": "580-1",
    "cuda-toolkit-13-0": "13.0.2-1",
}
GOOD = Probe(
    kernel=KERNEL,
    kernels=(KERNEL,),
    headers=(KERNEL,),
    nvidia=Nvidia(loaded="580.178.04", installed="580.178.04", flavour="open", packages=THERE),
)


def having(**nvidia: Any) -> Probe:
    return replace(GOOD, nvidia=replace(GOOD.nvidia, **nvidia))


def test_a_host_as_planned_has_no_problem() -> None:
    assert package_problem(GOOD, PLAN, PACKAGES, module="580.178.04") == ""
    assert loading_problem(GOOD, PLAN) == ""
    assert unpinned_packages(GOOD, PLAN) == {}


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (having(packages={}, installed=""), "not installed"),
        (having(packages={}, installed="550.54"), "550.54 is not from nvidia-open"),
        (
            having(packages={**THERE, "nvidia-open": "590.48.01-1", "nvidia-driver-cuda": "590.48.01-1"}),
            "590.48.01 is installed (to keep it: rigup lock --upgrade driver=590.48.01)",
        ),
        (
            having(packages={**THERE, "nvidia-open": "570.86.15-1"}),
            f"570.86.15 {BELOW}",
        ),
        (
            having(packages={n: v for n, v in THERE.items() if "pers" not in n}),
            "nvidia-persistenced missing",
        ),
        (having(unconfigured={"nvidia-open": "580.178.04-1"}), "dpkg was interrupted: nvidia-open"),
        (
            having(packages={**THERE, "nvidia-fabricmanager": "580.95.05-1"}),
            "nvidia-fabricmanager 580.95.05 installed, not 580.178.04",
        ),
        (
            replace(having(packages={**THERE, "nvidia-open": "590.48.01-1"}), headers=()),
            "590.48.01 is installed (to keep it: rigup lock --upgrade driver=590.48.01); "
            f"headers of the next kernel {KERNEL} are missing",
        ),
        (replace(GOOD, headers=()), f"headers of the next kernel {KERNEL} are missing"),
    ],
)
def test_what_the_packages_lack(probe: Probe, words: str) -> None:
    assert package_problem(probe, PLAN, PACKAGES, module="580.178.04") == words


@pytest.mark.parametrize(("module", "state"), [("", "is missing"), ("550.54.14", "is 550.54.14")])
def test_a_kernel_without_the_module_is_named(module: str, state: str) -> None:
    assert package_problem(GOOD, PLAN, PACKAGES, module) == f"kernel module for the next kernel {KERNEL} {state}"


def test_every_problem_with_the_packages_is_told() -> None:
    there = {name: version for name, version in THERE.items() if "pers" not in name}
    probe = having(packages=there, unconfigured={"nvidia-settings": "580.178.04-1"})
    first, second, third = package_problem(probe, PLAN, PACKAGES, module="").split("; ")
    assert "nvidia-settings" in first and "nvidia-persistenced" in second and KERNEL in third


def test_a_hold_that_somebody_set_is_said_to_end_where_its_package_moves() -> None:
    held = ("linux-image-amd64", "nvidia-open")
    assert package_problem(replace(GOOD, held=held), PLAN, PACKAGES, module="580.178.04") == ""
    moved = replace(having(packages={**THERE, "nvidia-open": "590.48.01-1"}), held=held)
    assert package_problem(moved, PLAN, PACKAGES, module="580.178.04").endswith("(apt-mark hold nvidia-open)")


DEBIAN = {"nvidia-modprobe": "570.133.07-1", "libnvidia-ml1": "550.163.01-2", "nvidia-smi": "550.163.01-2"}
UBUNTU = {
    "linux-modules-nvidia-580-open-generic": "6.8.0-60.63+1",
    "nvidia-driver-580-open": "580.178.04-0ubuntu0.24.04.1",
}


@pytest.mark.parametrize(
    ("os", "installed", "packages", "words"),
    [
        (
            "debian-13",
            "550.163.01",
            DEBIAN,
            f"Debian's 550.163.01 {BELOW}",
        ),
        (
            "ubuntu-24.04",
            "580.178.04",
            UBUNTU,
            'Ubuntu\'s 580.178.04 is installed (to keep it: driver = "keep" in group_data)',
        ),
    ],
)
def test_the_distributions_own_driver_is_named_and_replaced(
    os: str, installed: str, packages: dict[str, str], words: str
) -> None:
    there = {**packages, "nvidia-kernel-common": "20240109+1", "nvidia-cuda-toolkit": "12.4.131~12.4.1-2"}
    probe = having(packages=there, installed=installed, of_distribution=tuple(sorted(there)))
    assert package_problem(replace(probe, os=os), PLAN, PACKAGES, module="") == words
    assert set(unpinned_packages(probe, PLAN)) == set(packages)


def test_packages_of_another_driver_that_dpkg_did_not_finish() -> None:
    unfinished = {"nvidia-open-kernel-dkms": "550.163.01-2", "nvidia-open": "580.178.04-1", "cuda-keyring": "1.1-1"}
    assert stuck_packages(having(unconfigured=unfinished), PLAN) == ("nvidia-open-kernel-dkms",)
    same = having(unconfigured={"nvidia-smi": "580.178.04-2"}, of_distribution=("nvidia-smi",))
    assert stuck_packages(same, PLAN) == ("nvidia-smi",)


def test_a_stray_is_any_package_of_the_driver_at_another_version() -> None:
    probe = having(packages={**THERE, "libnvidia-ml1": "1:590.48.01-2", "nvidia-container-toolkit": "1.17.8-1"})
    assert unpinned_packages(probe, PLAN) == {"libnvidia-ml1": "590.48.01"}


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (having(loaded=""), "the kernel runs no driver"),
        (having(loaded="", nouveau=True), "nouveau drives the GPUs"),
        (having(loaded="580.95.05"), "the kernel runs 580.95.05"),
        (having(flavour="proprietary"), "the kernel runs the proprietary modules, but the GPUs need the open ones"),
    ],
)
def test_what_the_kernel_runs(probe: Probe, words: str) -> None:
    assert loading_problem(probe, PLAN) == words


def test_the_newest_kernel_is_the_one_that_boots() -> None:
    assert booting_kernel(replace(GOOD, kernels=("6.1.0-9-amd64", "6.1.0-25-amd64"))) == "6.1.0-25-amd64"
    assert booting_kernel(replace(GOOD, kernels=())) == KERNEL


@pytest.mark.parametrize(
    ("built", "wanted", "words"),
    [
        (BuiltFor("13.0.2", ("8.6",)), MadeFor(cuda="13.0.2", compute_capabilities=("8.6",)), ""),
        (
            BuiltFor("13.0.2", ("8.6",)),
            MadeFor(cuda="13.0.2", compute_capabilities=("12.0",)),
            "build old is for 8.6, but the rig has 12.0",
        ),
        (
            BuiltFor("13.0.1", ("8.6",)),
            MadeFor(cuda="13.0.2", compute_capabilities=("8.6", "12.0")),
            "build old is for 8.6, but the rig has 8.6, 12.0",
        ),
        (
            BuiltFor("13.0.1", ("8.6",)),
            MadeFor(cuda="13.0.2", compute_capabilities=("8.6",)),
            "build old uses CUDA 13.0.1, not 13.0.2",
        ),
        (BuiltFor("13.0"), MadeFor(cuda="13.0"), ""),
        (None, MadeFor(cuda="13.0"), ""),
        (BuiltFor("13.0.2", ("8.6",)), None, ""),
    ],
)
def test_what_the_build_of_the_current_release_was_made_for(
    built: BuiltFor | None, wanted: MadeFor | None, words: str
) -> None:
    probe = Probe(releases={"chat": {"build": "old"}}, built_for={"old": built} if built else {})
    build = Build(engine="llama.cpp", version="b1", method="source", made_for=wanted)
    assert unsuited_build(probe, "chat", build) == words
    assert unsuited_build(Probe(), "chat", build) == ""
