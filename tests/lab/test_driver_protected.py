"""What keeps a driver away or where it is: Secure Boot, somebody else's apt, and upgrades that come by themselves.

The machine's GPUs, firmware and NVIDIA's repository are the lab's; apt, dpkg and unattended-upgrades are Debian's.
The slow tests go on from one another, in this order: a driver is not installed anew for each.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rigup.lab.gpus import SimulatedGpus
from rigup.render.driver_files import DRIVER_PREFERENCES, UNATTENDED_UPGRADES
from tests.lab.gpu_fleet import NEW, OLD, OTHER_BRANCH, GpuFleet, error, made_gpu_fleet, steps

pytestmark = pytest.mark.lab

SECURE_BOOT = (
    "Secure Boot is on: its kernel loads only modules signed with a key that its firmware knows, "
    "and the key of DKMS is not enrolled there"
)
EVERYTHING = "dpkg-query -W; ls /etc/apt/sources.list.d /etc/apt/preferences.d /etc/apt/keyrings /etc/modprobe.d"
ALLOWED = "/etc/apt/apt.conf.d/60nvidia-allowed"
ORIGIN = '#clear Unattended-Upgrade::Origins-Pattern;\nUnattended-Upgrade::Origins-Pattern { "origin=NVIDIA"; };\n'


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards and nothing installed, and a lock that pins the older driver."""
    with made_gpu_fleet(tmp_path_factory, "protected") as fleet:
        yield fleet


def test_secure_boot_is_explained_before_anything_is_installed(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    gpus.secure_boot(True)
    fleet.host.machine.reboot()
    try:
        before = fleet.host.machine.ssh(EVERYTHING).stdout
        said = error(fleet.apply("--reboot", expect=1))
        assert said["message"] == f"{fleet.host.name}: {SECURE_BOOT}"
        assert "mokutil --import /var/lib/dkms/mok.pub" in said["hint"] and "switch Secure Boot off" in said["hint"]
        assert fleet.host.machine.ssh(EVERYTHING).stdout == before
        assert fleet.installed() == {}
    finally:
        gpus.secure_boot(False)
        fleet.host.machine.reboot()


@pytest.mark.slow
def test_debian_packages_wait_for_apts_lock_and_name_its_holder(fleet: GpuFleet) -> None:
    """The first packages that an apply installs, before any of the driver's, and the driver after them."""
    fleet.host.tell("DEBIAN_FRONTEND=noninteractive apt-get purge -q -y curl")
    with fleet.apts_lock_held():
        run = fleet.start("apply", "--yes", "--reboot", "--json")
        run.wait_to_say("waiting for apt, which process ")
        assert "(python3) holds" in run.text
        assert not fleet.host.says("command -v curl")

    assert run.wait() == 0, run.text
    first = run.json["hosts"][0]["changes"][0]
    assert first["role"] == "base" and first["step"].startswith("Debian packages curl")
    assert fleet.host.says("command -v curl")
    assert fleet.loaded() == OLD


@pytest.mark.slow
def test_an_unattended_upgrade_leaves_the_driver_alone(fleet: GpuFleet) -> None:
    allow_unattended_upgrades_of_nvidia(fleet)
    for version in (NEW, OTHER_BRANCH):
        assert version in fleet.host.tell("apt-cache policy nvidia-open")

    unattended_upgrade(fleet)
    assert set(fleet.installed().values()) == {OLD}
    assert fleet.host.says("nvidia-smi")


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_was_taken_away_is_named_and_put_back(fleet: GpuFleet) -> None:
    boot = fleet.boots()
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert shown[0] == f"driver held at {OLD}, nouveau off"
    assert shown[1] == f"driver {OLD}: {NEW} is installed (to keep it: rigup lock --upgrade driver={NEW})"

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
