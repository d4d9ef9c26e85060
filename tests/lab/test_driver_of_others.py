"""Boxes that have a driver which somebody else put there: the distribution.

apt, dpkg, systemd and the reboots are real; the packages have the names and maintainers of Debian's and Ubuntu's, and
what is in them is the lab's. The tests go on from one another, in this order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab.gpu_fleet import OLD, GpuFleet, error, made_gpu_fleet, steps

pytestmark = [pytest.mark.lab, pytest.mark.slow]

DEBIANS = "550.163.01"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends"
ALIEN = "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Maintainer}\\n' | grep -E 'NVIDIA Maint|Ubuntu'"


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards and Debian's own driver, and a lock that pins NVIDIA's."""
    with made_gpu_fleet(tmp_path_factory, "others") as fleet:
        fleet.host.tell(f"apt-get -q update && {INSTALL} linux-headers-{os.uname().release} nvidia-driver")
        fleet.host.machine.reboot()
        yield fleet


def test_a_kept_driver_below_what_the_build_needs_is_refused_with_both_numbers(fleet: GpuFleet) -> None:
    assert fleet.loaded() == DEBIANS
    fleet.describe_gpus(OLD, driver="keep")
    said = error(fleet.apply(expect=2))
    assert said["message"] == (
        f"{fleet.host.name}: driver {DEBIANS} is loaded, which runs CUDA up to 12.4; "
        "llama.cpp b11434 is built with CUDA 13.0.2 and needs driver 580 or later"
    )
    assert said["hint"].startswith('let rigup install and hold the lock\'s: remove driver = "keep"')


def test_debians_own_is_named_and_replaced(fleet: GpuFleet) -> None:
    fleet.describe_gpus(OLD)
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert f"driver {OLD}: Debian's {DEBIANS} is installed, below 580, which this plan needs" in shown
    fleet.apply("--reboot")
    assert fleet.loaded() == OLD and set(fleet.installed().values()) == {OLD}
    assert fleet.host.machine.ssh(f"{ALIEN} | grep ^ii").stdout == ""
    assert fleet.host.answers()
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
