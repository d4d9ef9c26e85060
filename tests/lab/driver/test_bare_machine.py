"""NVIDIA's driver on a bare machine: what stops it before anything is installed, and the packages themselves.

The machine's GPUs and NVIDIA's repository are the lab's; apt, dpkg and systemd are real. test_loaded.py goes on
to the kernel. The tests go on from one another, in this order.
"""

from __future__ import annotations

import pytest

from rigup.lab.gpus.simulated import SimulatedGpus
from tests.lab.gpu_fleet import NEW, OLD, OTHER_BRANCH, GpuFleet, error

pytestmark = [pytest.mark.lab]

EVERYTHING = "dpkg-query -W; ls /etc/apt/sources.list.d /etc/apt/preferences.d /etc/apt/keyrings /etc/modprobe.d"


def test_secure_boot_is_explained_before_anything_is_installed(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    gpus.secure_boot(True)
    fleet.host.machine.reboot()
    try:
        before = fleet.host.machine.ssh(EVERYTHING).stdout
        said = error(fleet.apply("--reboot", expect=1))
        assert said["message"].startswith(f"{fleet.host.name}: ") and "Secure Boot" in said["message"]
        assert "mokutil --import /var/lib/dkms/mok.pub" in said["hint"]
        assert fleet.host.machine.ssh(EVERYTHING).stdout == before
        assert fleet.installed() == {}
    finally:
        gpus.secure_boot(False)
        fleet.host.machine.reboot()


def test_another_key_stops_it_before_anything_is_trusted(fleet: GpuFleet) -> None:
    offered = fleet.fingerprint
    forged = "F" * 32 + offered[-8:]  # the same short form, and another key
    fleet.describe_gpus(OLD, nvidia_key_fingerprint=forged)
    said = error(fleet.apply(expect=1))
    assert offered in said["message"] and forged in said["message"]
    assert not fleet.host.says(
        "ls /etc/apt/keyrings/rigup-nvidia.gpg || ls /etc/apt/sources.list.d/nvidia-cuda.sources"
    )


def test_a_repository_out_of_reach_is_named(fleet: GpuFleet) -> None:
    fleet.describe_gpus(OLD, nvidia_repository="http://hub:9/compute/cuda/repos")
    said = error(fleet.apply(expect=1))
    assert said["message"].startswith(f"{fleet.host.name}: ")
    assert " http://hub:9/compute/cuda/repos/debian12/x86_64/" in said["message"]
    assert "nvidia_repository" in said["hint"]


def test_a_source_that_trusts_without_a_key_is_refused(fleet: GpuFleet) -> None:
    line = f"deb [trusted=yes] {fleet.address} /"
    fleet.host.tell(f"echo '{line}' >/etc/apt/sources.list.d/cuda.list")
    fleet.describe_gpus(OLD)
    said = error(fleet.rigup("diff", "--json", expect=1))
    assert said["message"].startswith(f"{fleet.host.name}: /etc/apt/sources.list.d/cuda.list ")
    assert "(trusted=yes)" in said["message"]
    fleet.host.tell("rm /etc/apt/sources.list.d/cuda.list")


def test_a_version_that_does_not_exist_is_answered_with_those_that_do(fleet: GpuFleet) -> None:
    fleet.describe_gpus("580.1.99")
    said = error(fleet.apply(expect=1))
    assert "nvidia-open 580.1.99" in said["message"]
    assert f"{OTHER_BRANCH}, {NEW}, {OLD}" in said["hint"]
    assert fleet.installed() == {}


def test_who_holds_apts_lock_is_named_and_waited_for(fleet: GpuFleet) -> None:
    """Without leave to reboot, the run ends with what is left to do."""
    fleet.describe_gpus(OLD)
    boot = fleet.boots()
    with fleet.apts_lock_held():
        run = fleet.start("apply", "--yes", "--json")
        run.wait_to_say("apt's lock")
        assert "(python3)" in run.text

    assert run.wait() == 1, run.text
    said = error(run)
    assert "nouveau" in said["message"] and "rigup apply --reboot" in said["hint"]
    assert fleet.boots() == boot
    assert set(fleet.installed().values()) == {OLD}
