"""A lock without a driver: the host's own is used, held against what the build needs, and told of when it moved.

The machine's GPUs and NVIDIA's repository are the lab's; apt, dpkg and the reboots are real. The driver is installed
and moved by hand, as a person would. The tests go on from one another, in this order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from rigup.lab.gpus.simulated import SimulatedGpus
from rigup.lab.packages.nvidia_repository import cuda_repository
from tests.lab.gpu_fleet import NEW, OLD, OTHER_BRANCH, TOO_OLD, GpuFleet, error, made_gpu_fleet, steps

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LOCK = f"hold {NEW}: rigup lock"


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards and no driver, and a lock without one."""
    with made_gpu_fleet(tmp_path_factory, "alone") as fleet:
        fleet.describe_gpus(None)
        yield fleet


def row(fleet: GpuFleet, expect: int) -> dict[str, Any]:
    """What `rigup status` says of the service."""
    (found,) = fleet.rigup("status", "--json", expect=expect).json["services"]
    return dict(found)


def test_a_host_without_a_driver_is_refused_before_anything_is_changed(fleet: GpuFleet) -> None:
    said = error(fleet.apply(expect=2))
    assert said["message"].startswith(f"{fleet.host.name}: no NVIDIA driver ")
    assert "580" in said["message"] and LOCK in said["hint"]
    assert fleet.installed() == {}
    assert not fleet.host.says("ls /opt/rigup")


def test_a_driver_below_what_the_build_needs_is_refused_with_both_numbers(fleet: GpuFleet) -> None:
    url = cuda_repository(fleet.host.machine.record.suite).url
    fleet.host.tell(f"curl -sSfO {url}cuda-keyring_1.1-1_all.deb && dpkg -i cuda-keyring_1.1-1_all.deb")
    names = "nvidia-open nvidia-driver-cuda nvidia-kernel-open-dkms nvidia-kernel-support firmware-nvidia-gsp"
    words = " ".join(f"{name}={TOO_OLD}-1" for name in f"{names} libnvidia-ml1 libcuda1 nvidia-persistenced".split())
    headers = f"linux-headers-{os.uname().release}"
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends"
    fleet.host.tell(f"apt-get -q update && {install} {headers} {words}")
    fleet.host.machine.reboot()
    assert fleet.loaded() == TOO_OLD
    said = error(fleet.apply(expect=2))
    assert said["message"].startswith(f"{fleet.host.name}: driver {TOO_OLD} ")
    assert all(word in said["message"] for word in ("12.8", "llama.cpp b11434", "13.0.2", "580")), said
    assert LOCK in said["hint"]


def test_one_that_is_enough_is_used_and_left_alone(fleet: GpuFleet) -> None:
    fleet.upgrade_by_hand(OLD)
    fleet.host.machine.reboot()
    roles = {change["role"] for change in fleet.apply().json["hosts"][0]["changes"]}
    assert "driver" not in roles and "service" in roles
    assert fleet.host.answers()
    assert (fleet.loaded(), set(fleet.installed().values())) == (OLD, {OLD})
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    found = row(fleet, expect=0)
    assert (found["driver"], found["drift"], found["health"]) == (OLD, "none", "answers")


def test_one_that_moved_by_hand_is_one_line_of_diff_and_of_status(fleet: GpuFleet) -> None:
    fleet.upgrade_by_hand(NEW)
    (host,) = fleet.rigup("diff", "--json", expect=1).json["hosts"]
    moved = f"driver {OLD} is loaded but {NEW} is installed"
    (said,) = host["drift"]
    assert host["errors"] == [] and (said["what"], said["service"]) == ("driver", "")
    assert said["message"].startswith(moved) and LOCK in said["hint"]
    found = row(fleet, expect=1)
    assert (found["driver"], found["drift"], found["health"]) == (f"{OLD}, {NEW} installed", "driver", "answers")
    shown = fleet.rigup("diff", expect=1).text
    assert shown.count(moved) == 1


def test_a_reboot_makes_it_the_hosts_driver(fleet: GpuFleet) -> None:
    fleet.upgrade_by_hand(OTHER_BRANCH)
    fleet.host.machine.reboot()
    assert fleet.loaded() == OTHER_BRANCH
    assert fleet.rigup("diff", "--json").json["hosts"][0]["state"] == "unchanged"
    found = row(fleet, expect=0)
    assert (found["driver"], found["drift"], found["health"]) == (OTHER_BRANCH, "none", "answers")


def test_another_toolkit_in_the_lock_is_another_build(fleet: GpuFleet) -> None:
    build = row(fleet, expect=0)["build"]
    fleet.describe_gpus(None, toolkit="13.0.1")
    shown = steps(fleet.rigup("diff", "--json", expect=1), "service")
    assert shown == [f"release of chat: build {build} uses CUDA 13.0.2, not 13.0.1"]
    fleet.apply()
    assert "13.0.1" in fleet.host.tell("dpkg-query -W -f '${Version}' cuda-toolkit-13-0")
    assert row(fleet, expect=0)["build"] != build
    assert fleet.host.answers()


def test_a_build_from_the_cache_brings_its_libraries_and_no_toolkit(fleet: GpuFleet) -> None:
    state = "dpkg-query -W -f '${Package} ${db:Status-Status}\\n' cuda-toolkit-13-0 cuda-nvcc-13-0 cuda-cudart-13-0"
    fleet.host.tell("apt-get purge -q -y 'cuda-toolkit-*' 'cuda-nvcc-*' 'cuda-cudart-*'; rm -r /opt/rigup/builds/*")
    fleet.describe_gpus(None)
    run = fleet.apply()
    assert f"sending the build of {fleet.host.name}" in run.text
    there = [
        line.split()[0] for line in fleet.host.machine.ssh(state).stdout.splitlines() if "installed" in line.split()
    ]
    assert there == ["cuda-cudart-13-0"]
    assert fleet.host.answers()


def test_other_cards_are_another_build(fleet: GpuFleet) -> None:
    build, weights = row(fleet, expect=0)["build"], fleet.weights()
    SimulatedGpus(fleet.host.machine).exchange("4x RTX 5090")
    fleet.host.machine.reboot()
    fleet.describe_gpus(None, rig={"gpus": "4x RTX 5090"})
    shown = steps(fleet.rigup("diff", "--json", expect=1), "service")
    assert shown == [f"release of chat: build {build} is for 8.6, but the rig has 12.0"]
    fleet.apply()
    assert row(fleet, expect=0)["build"] != build
    assert fleet.host.answers()
    assert fleet.weights() == weights
