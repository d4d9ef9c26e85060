"""Boxes that have a driver which somebody else put there: the distribution, NVIDIA's .run file, an image's maker.

apt, dpkg, systemd and the reboots are real; the packages have the names and maintainers of Debian's and Ubuntu's, and
what is in them is the lab's. The tests go on from one another, in this order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.lab.gpu_fleet import NEW, OLD, GpuFleet, error, made_gpu_fleet, steps

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.rests_on("the run", "driver", "drift and status")]

DEBIANS, RUN_FILES = "550.163.01", "575.64.05"
KEEP = 'driver = "keep" in group_data'
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends"
ALIEN = "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Maintainer}\\n' | grep -E 'NVIDIA Maint|Ubuntu'"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so"


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards and Debian's own driver, and a lock that pins NVIDIA's."""
    with made_gpu_fleet(tmp_path_factory, "others") as fleet:
        fleet.host.tell(f"apt-get -q update && {INSTALL} linux-headers-{os.uname().release} nvidia-driver")
        fleet.host.machine.reboot()
        yield fleet


def without_driver(fleet: GpuFleet) -> None:
    """Takes every driver off the machine, with NVIDIA's repository and rigup's hold."""
    fleet.host.tell("apt-get purge -q -y '*nvidia*' libcuda1")
    fleet.host.tell("rm -f /etc/apt/preferences.d/00-rigup-nvidia-driver /etc/apt/sources.list.d/nvidia-cuda.sources")
    fleet.host.tell("apt-get -q update")


def test_a_kept_driver_below_what_the_build_needs_is_refused_with_both_numbers(fleet: GpuFleet) -> None:
    assert fleet.loaded() == DEBIANS
    fleet.describe_gpus(OLD, driver="keep")
    said = error(fleet.apply(expect=2))
    needs = r"llama\.cpp b11434 .* 13\.0\.2 .* 580 "
    assert re.match(rf"{fleet.host.name}: driver {DEBIANS} .* 12\.4; {needs}", said["message"])
    assert 'remove driver = "keep"' in said["hint"]


def test_debians_own_is_named_and_replaced(fleet: GpuFleet) -> None:
    fleet.describe_gpus(OLD)
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    (step,) = [step for step in shown if step.startswith(f"driver {OLD}: Debian's {DEBIANS} ")]
    assert KEEP not in step, "it is too old to keep"
    fleet.apply("--reboot")
    assert fleet.loaded() == OLD and set(fleet.installed().values()) == {OLD}
    assert fleet.host.machine.ssh(f"{ALIEN} | grep ^ii").stdout == ""
    assert fleet.host.answers()
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


def test_one_whose_module_does_not_compile_is_taken_out_of_apts_way(fleet: GpuFleet) -> None:
    without_driver(fleet)
    fleet.host.tell(f"echo {DEBIANS} >/etc/lab-gpus/does_not_compile")
    assert "Bad return status" in fleet.host.machine.ssh(f"{INSTALL} nvidia-driver=550.163.01-1 2>&1").stdout
    assert "nvidia-open-kernel-dkms" in fleet.host.tell("dpkg --audit")
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert "no half-installed driver: nvidia-driver, nvidia-open-kernel-dkms" in shown
    fleet.apply("--reboot")
    assert fleet.host.tell("dpkg --audit") == ""
    assert fleet.loaded() == OLD
    assert fleet.host.machine.ssh(f"{ALIEN} | grep -v ^rc").stdout == ""
    assert fleet.host.answers()


def test_nvidias_own_that_does_not_compile_is_told_with_its_cause_and_a_later_one(fleet: GpuFleet) -> None:
    without_driver(fleet)
    fleet.host.tell(f"echo {OLD} >/etc/lab-gpus/does_not_compile")
    fleet.describe_gpus(OLD)
    for _ in range(2):  # the second time dpkg finds it half installed
        said = error(fleet.apply("--reboot", expect=1))
        assert "nvidia-kernel-open-dkms" in said["message"] and "error: implicit declaration" in said["message"]
        assert f"rigup lock --upgrade driver={NEW}" in said["hint"]
    drift = fleet.rigup("diff", "--json", expect=1).json["hosts"][0]["drift"]
    assert any("nvidia-kernel-open-dkms" in one["message"] for one in drift if one["what"] == "packages")
    fleet.describe_gpus(NEW)
    fleet.apply("--reboot")
    assert fleet.loaded() == NEW and fleet.host.answers()
    fleet.host.tell("rm /etc/lab-gpus/does_not_compile")


def test_ubuntus_own_is_kept_if_so_said_and_else_replaced(fleet: GpuFleet) -> None:
    without_driver(fleet)
    modules = f"linux-modules-nvidia-580-open-{os.uname().release}"
    fleet.host.tell(f"{INSTALL} {modules} nvidia-driver-580-open")
    fleet.host.machine.reboot()
    fleet.describe_gpus(NEW, driver="keep")
    assert "driver" not in {change["role"] for change in fleet.apply().json["hosts"][0]["changes"]}
    assert fleet.loaded() == OLD and fleet.host.answers()

    fleet.describe_gpus(NEW)
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    # named after the host's system, which is Debian here
    assert any(step.startswith(f"driver {NEW}: Debian's {OLD} ") and KEEP in step for step in shown)
    fleet.apply("--reboot")
    assert fleet.loaded() == NEW and fleet.host.answers()
    assert fleet.host.machine.ssh(f"{ALIEN} | grep ^ii").stdout == ""


def test_a_run_files_driver_is_refused_with_its_uninstaller(fleet: GpuFleet) -> None:
    fleet.host.tell(f"cp -L {LIBRARY}.1 {LIBRARY}.{RUN_FILES} && ln -sf libnvidia-ml.so.{RUN_FILES} {LIBRARY}.1")
    fleet.host.tell("printf '#!/bin/sh\\n' >/usr/bin/nvidia-uninstall; chmod +x /usr/bin/nvidia-uninstall")
    before = fleet.host.tell("dpkg-query -W")
    said = error(fleet.apply(expect=2))
    assert said["message"].startswith(f"{fleet.host.name}: driver {RUN_FILES} ") and ".run " in said["message"]
    assert ": nvidia-uninstall;" in said["hint"] and KEEP in said["hint"]
    fleet.host.tell("rm /usr/bin/nvidia-uninstall")
    (drift,) = fleet.rigup("diff", "--json", expect=1).json["hosts"][0]["drift"]
    assert drift["message"].startswith(f"driver {RUN_FILES} ") and ".run " in drift["message"]
    assert f"sh NVIDIA-Linux-x86_64-{RUN_FILES}.run --uninstall" in drift["hint"]
    assert fleet.host.tell("dpkg-query -W") == before
    fleet.host.tell(f"rm {LIBRARY}.{RUN_FILES}; ln -sf libnvidia-ml.so.{NEW} {LIBRARY}.1")


LAMBDA = "Package: lambda-stack-cuda\\nVersion: 0.1.15\\nArchitecture: all\\nMaintainer: Lambda\\nDescription: CUDA\\n"
# How a machine looks like the image, and how that is undone.
IMAGES = {
    "DGX OS": (
        'printf \'DGX_NAME="DGX Server"\\nDGX_SWBUILD_VERSION="7.2.1"\\n\' >/etc/dgx-release',
        "rm /etc/dgx-release",
    ),
    "Lambda Stack": (
        f"mkdir -p /tmp/stack/DEBIAN && printf '{LAMBDA}' >/tmp/stack/DEBIAN/control && "
        "dpkg-deb --build /tmp/stack /tmp/stack.deb && dpkg -i /tmp/stack.deb",
        "dpkg -P lambda-stack-cuda",
    ),
}


@pytest.mark.parametrize(("setup", "undo"), IMAGES.values(), ids=IMAGES)
def test_a_data_centre_image_keeps_its_driver(fleet: GpuFleet, setup: str, undo: str) -> None:
    fleet.host.tell(setup)
    fleet.describe_gpus(OLD)
    assert "driver" not in {change["role"] for change in fleet.apply().json["hosts"][0]["changes"]}
    assert fleet.loaded() == NEW
    fleet.host.tell(undo)
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert any(step.startswith(f"driver {OLD}: {NEW} ") for step in shown)
