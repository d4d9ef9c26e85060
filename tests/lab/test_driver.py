"""NVIDIA's driver on a bare machine: what stops it before anything is installed, and the packages themselves.

The machine's GPUs and NVIDIA's repository are the lab's; apt, dpkg and systemd are real. test_driver_loaded.py goes on
to the kernel. The tests go on from one another, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.gpu_fleet import NEW, OLD, OTHER_BRANCH, GpuFleet, error, made_gpu_fleet

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards and nothing installed, and a lock that pins the older driver."""
    with made_gpu_fleet(tmp_path_factory, "driver") as fleet:
        yield fleet


def test_another_key_stops_it_before_anything_is_trusted(fleet: GpuFleet) -> None:
    offered = fleet.fingerprint
    forged = "F" * 32 + offered[-8:]  # the same short form, and another key
    fleet.describe_gpus(OLD, nvidia_key_fingerprint=forged)
    said = error(fleet.apply(expect=1))
    assert f"the key's fingerprint is {offered}, pinned is {forged}" in said["message"]
    assert not fleet.host.says(
        "ls /etc/apt/keyrings/rigup-nvidia.gpg || ls /etc/apt/sources.list.d/nvidia-cuda.sources"
    )


def test_a_repository_out_of_reach_is_named(fleet: GpuFleet) -> None:
    fleet.describe_gpus(OLD, nvidia_repository="http://hub:9/compute/cuda/repos")
    said = error(fleet.apply(expect=1))
    assert said["message"].startswith(f"{fleet.host.name}: http://hub:9/compute/cuda/repos/debian12/x86_64/")
    assert "nvidia_repository" in said["hint"]


def test_a_source_that_trusts_without_a_key_is_refused(fleet: GpuFleet) -> None:
    line = f"deb [trusted=yes] {fleet.address} /"
    fleet.host.tell(f"echo '{line}' >/etc/apt/sources.list.d/cuda.list")
    fleet.describe_gpus(OLD)
    said = error(fleet.rigup("diff", "--json", expect=1))
    assert "/etc/apt/sources.list.d/cuda.list trusts NVIDIA's packages without checking a signature" in said["message"]
    fleet.host.tell("rm /etc/apt/sources.list.d/cuda.list")


def test_a_version_that_does_not_exist_is_answered_with_those_that_do(fleet: GpuFleet) -> None:
    fleet.describe_gpus("580.1.99")
    said = error(fleet.apply(expect=1))
    assert "nvidia-open 580.1.99 is not in" in said["message"]
    assert f"{OTHER_BRANCH}, {NEW}, {OLD}" in said["hint"]
    assert fleet.installed() == {}


def test_who_holds_apts_lock_is_named_and_waited_for(fleet: GpuFleet) -> None:
    """Without leave to reboot, the run ends with what is left to do."""
    fleet.describe_gpus(OLD)
    boot = fleet.boots()
    with fleet.apts_lock_held():
        run = fleet.start("apply", "--yes", "--json")
        run.wait_to_say("waiting for apt, which process ")
        assert "(python3) holds" in run.text

    assert run.wait() == 1, run.text
    said = error(run)
    assert "needs a reboot (nouveau has the cards)" in said["message"] and "rigup apply --reboot" in said["hint"]
    assert fleet.boots() == boot
    assert set(fleet.installed().values()) == {OLD}
