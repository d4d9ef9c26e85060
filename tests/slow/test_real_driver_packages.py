"""Debian's real driver on a lab machine: its packages, its kernel module compiled by DKMS, its real NVML.

Needs the non-free archive of Debian 13. The way to NVIDIA's packages is real apt and dpkg; their content is the lab's.
Debian's kernels from 6.12.107 on do not compile its 550.163.01, so the box is what many are: half installed. The real
compiler says so after ten minutes of processor; but for that one test, the compilation ends at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from rigup.facts.probe import parse
from rigup.facts.probe_script import script
from tests.lab.gpu_fleet import OLD, GpuFleet, error, made_gpu_fleet, steps

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.rests_on("the run", "driver")]

COMPILE_SECONDS = 1500
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends"
DKMS_SETTINGS = "/etc/dkms/nvidia-current-open.conf"
STATES = "dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}|${Maintainer}\\n'"


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine of Debian 13 with its non-free archive, and nothing of the lab's in place of Debian's DKMS yet."""
    with made_gpu_fleet(tmp_path_factory, "real", packages=(), suite="trixie", disk="10g") as fleet:
        fleet.host.tell("sed -i 's/ main$/ main contrib non-free non-free-firmware/' /etc/apt/sources.list")
        fleet.host.tell("mv /etc/apt/sources.list.d/lab.list /root/ && apt-get -q update")
        yield fleet


def install(fleet: GpuFleet) -> tuple[bool, str]:
    """Debian's headers and driver. Whether apt was content, and what it said."""
    fleet.host.tell(f"{INSTALL} linux-headers-amd64 </dev/null")
    words = f"{INSTALL} nvidia-driver nvidia-open-kernel-dkms nvidia-smi </dev/null"
    done = fleet.host.machine.ssh(f"{words} 2>&1", timeout=COMPILE_SECONDS)
    return done.returncode == 0, done.stdout[-3000:]


@pytest.mark.rare
def test_what_dkms_makes_of_the_real_module(fleet: GpuFleet) -> None:
    content, said = install(fleet)
    built = "nvidia-current-open" in fleet.host.machine.ssh("dkms status | grep installed").stdout
    assert built == content, said
    if not built:
        log = fleet.host.tell("cat /var/lib/dkms/nvidia-current-open/*/build/make.log")
        assert "error: too few arguments to function 'pci_resize_resource'" in log
        assert "iF |nvidia-open-kernel-dkms|" in fleet.host.tell(STATES)


def test_the_real_packages_are_left_half_installed(fleet: GpuFleet) -> None:
    fleet.host.tell(f"mkdir -p /etc/dkms && echo 'MAKE[0]=false' >{DKMS_SETTINGS}")
    content, said = install(fleet)
    assert not content, said
    assert "iF |nvidia-open-kernel-dkms|" in fleet.host.tell(STATES)
    assert "couldn't communicate with the NVIDIA driver" in fleet.host.machine.ssh("nvidia-smi").stdout


def test_the_probe_talks_to_the_real_library(fleet: GpuFleet) -> None:
    fleet.describe_gpus(None)
    said = error(fleet.apply(expect=2))
    assert re.match(rf"{fleet.host.name}: .* rigup\.lock .* 580 ", said["message"])
    nvidia = parse(fleet.host.machine.ssh("sh -s", input=script()).stdout.splitlines()).nvidia
    assert (nvidia.error, nvidia.loaded, nvidia.installed) == ("Driver Not Loaded", "", "550.163.01")
    assert {"libnvidia-ml1", "nvidia-smi"} <= set(nvidia.of_distribution)


def test_it_moves_to_nvidias_packages_without_stopping_half_way(fleet: GpuFleet) -> None:
    # the stand-ins for NVIDIA's packages bring a module that is no source: the lab's DKMS "compiles" it
    fleet.host.tell("mv /root/lab.list /etc/apt/sources.list.d/ && apt-get -q update")
    fleet.host.tell(f"touch /boot/vmlinuz-{os.uname().release}")
    fleet.describe_gpus(OLD)
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert any("nvidia-open-kernel-dkms" in step or "Debian's 550.163.01" in step for step in shown)
    fleet.apply("--reboot", seconds=600)
    assert fleet.host.tell("dpkg --audit") == ""
    assert fleet.loaded() == OLD
    left = [line.split("|") for line in fleet.host.tell(STATES).splitlines() if "NVIDIA Maintainers" in line]
    assert [name for state, name, version, _ in left if state == "ii " and version.startswith("5")] == []
    assert not fleet.host.says("grep -rl nvidia-current /etc/modprobe.d")
    assert fleet.host.answers()
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
