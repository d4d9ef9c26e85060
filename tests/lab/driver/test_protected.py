"""What keeps a driver where it is: somebody else's apt, and upgrades that come by themselves.

The machine's GPUs and NVIDIA's repository are the lab's; apt, dpkg and unattended-upgrades are Debian's.
The tests go on from one another, in this order: a driver is not installed again for each.
"""

from __future__ import annotations

import pytest

from rigup.systemd.driver_files import DRIVER_PREFERENCES, UNATTENDED_UPGRADES
from tests.lab.gpu_fleet import NEW, OLD, OTHER_BRANCH, GpuFleet, steps

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.rests_on("the run", "driver")]

ALLOWED = "/etc/apt/apt.conf.d/60nvidia-allowed"
ORIGIN = '#clear Unattended-Upgrade::Origins-Pattern;\nUnattended-Upgrade::Origins-Pattern { "origin=NVIDIA"; };\n'


def test_debian_packages_wait_for_apts_lock_and_name_its_holder(fleet: GpuFleet) -> None:
    """The first packages that an apply installs, before any of the driver's, and the driver after them."""
    fleet.host.tell("DEBIAN_FRONTEND=noninteractive apt-get purge -q -y curl")
    with fleet.apts_lock_held():
        run = fleet.start("apply", "--yes", "--reboot", "--json")
        run.wait_to_say("apt's lock")
        assert "(python3)" in run.text
        assert not fleet.host.says("command -v curl")

    assert run.wait() == 0, run.text
    first = run.json["hosts"][0]["changes"][0]
    assert first["role"] == "base" and first["step"].startswith("Debian packages curl")
    assert fleet.host.says("command -v curl")
    assert fleet.loaded() == OLD


def test_an_unattended_upgrade_leaves_the_driver_alone(fleet: GpuFleet) -> None:
    allow_unattended_upgrades_of_nvidia(fleet)
    for version in (NEW, OTHER_BRANCH):
        assert version in fleet.host.tell("apt-cache policy nvidia-open")

    unattended_upgrade(fleet)
    assert set(fleet.installed().values()) == {OLD}
    assert fleet.host.says("nvidia-smi")


def test_each_of_what_prevents_it_is_enough_and_without_them_it_happens(fleet: GpuFleet) -> None:
    fleet.host.tell(f"mv {DRIVER_PREFERENCES} /root/preferences")
    unattended_upgrade(fleet)
    assert set(fleet.installed().values()) == {OLD}, "the list for unattended-upgrades does not hold"

    fleet.host.tell(f"mv /root/preferences {DRIVER_PREFERENCES}; mv {UNATTENDED_UPGRADES} /root/list")
    unattended_upgrade(fleet)
    assert set(fleet.installed().values()) == {OLD}, "the preferences do not hold"

    fleet.host.tell(f"rm {DRIVER_PREFERENCES}")
    said = unattended_upgrade(fleet)
    assert set(fleet.installed().values()) == {NEW}, said
    assert "mismatch" in fleet.host.machine.ssh("nvidia-smi").stdout


def test_what_was_taken_away_is_named_and_put_back(fleet: GpuFleet) -> None:
    boot = fleet.boots()
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert shown[0] == f"driver held at {OLD}, nouveau off"
    assert shown[1].startswith(f"driver {OLD}: {NEW} ") and f"rigup lock --upgrade driver={NEW}" in shown[1]

    fleet.apply("--reboot")
    assert set(fleet.installed().values()) == {OLD}
    assert fleet.loaded() == OLD and fleet.boots() == boot
    assert fleet.host.says(f"nvidia-smi && ls {DRIVER_PREFERENCES} {UNATTENDED_UPGRADES}")
    assert fleet.host.answers()
    unattended_upgrade(fleet)
    assert set(fleet.installed().values()) == {OLD}


def allow_unattended_upgrades_of_nvidia(fleet: GpuFleet) -> None:
    """Installs Debian's unattended-upgrades, which may take from NVIDIA and from nobody else; it runs when told to."""
    fleet.host.tell("systemctl mask --now --quiet apt-daily.timer apt-daily-upgrade.timer")
    options = "-q -y --no-install-recommends"
    fleet.host.tell(f"apt-get -q update; DEBIAN_FRONTEND=noninteractive apt-get install {options} unattended-upgrades")
    fleet.host.tell(f"printf '%s' '{ORIGIN}' >{ALLOWED}")


def unattended_upgrade(fleet: GpuFleet) -> str:
    """Runs it as its timer does; returns what it said, which must show that it may take from NVIDIA."""
    said = fleet.host.tell("unattended-upgrade -v 2>&1")
    assert "Allowed origins are: origin=NVIDIA" in said, said
    return said
