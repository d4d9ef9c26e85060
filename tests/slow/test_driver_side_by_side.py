"""Driver, DKMS and reboot beside a download, broken at any moment: a plain apply puts everything right.

GPUs, NVIDIA's repository and the engine are the lab's; apt, dpkg, DKMS, systemd and the reboot are real.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.lab.fleet import FILE_BYTES, FILES, wait_for
from tests.lab.gpu_fleet import OLD, GpuFleet, error, made_gpu_fleet

pytestmark = [pytest.mark.slow, pytest.mark.lab]

SLOW = 60_000
FOR_WEIGHTS_AND_BUILD_MIB = 2 * 1024 + 36
"""What both need, and 12 MiB: enough for the lab's small packages of the driver, not for a compiler."""


@pytest.fixture
def bare(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """A machine with nothing installed, and a hub that takes longer than driver and reboot."""
    with made_gpu_fleet(tmp_path_factory, "overlap") as fleet:
        fleet.hub.faults(bytes_per_second=SLOW)
        yield fleet


def installing_beside_a_download(fleet: GpuFleet) -> bool:
    """Whether apt is at work while the weights come."""
    return fleet.host.says("systemctl is-active --quiet rigup-apt") and fleet.host.part_bytes() > 0


def converges(fleet: GpuFleet) -> None:
    """What a plain apply with leave to reboot must do after anything."""
    fleet.hub.faults()
    fleet.apply("--reboot", seconds=600)
    assert fleet.loaded() == OLD
    assert fleet.host.answers() and fleet.host.jobs() == []
    assert fleet.host.tell("dpkg --audit") == ""
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


def test_kill_9_at_ten_moments(bare: GpuFleet) -> None:
    moments, before = random.Random(10), len(bare.hub.log())
    for _ in range(10):
        run = bare.start("apply", "--yes", "--reboot")
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(moments.uniform(2, 20))
        if run.process.poll() is None:
            run.kill()
    converges(bare)
    whole = [entry for entry in bare.hub.log()[before:] if entry["status"] == 200 and entry["bytes"] == FILE_BYTES]
    assert len(whole) <= len(FILES), "files came more than once"


def test_the_power_goes_while_the_driver_is_installed(bare: GpuFleet) -> None:
    run = bare.start("apply", "--yes", "--reboot")
    run.wait_to_say(f"installing {OLD}", seconds=240)
    wait_for(lambda: installing_beside_a_download(bare), "the driver's packages and a download")
    before = len(bare.hub.log())
    bare.host.machine.power_off()
    bare.host.machine.power_on()
    assert run.wait(600) in (0, 1), run.text
    assert "Traceback" not in run.text
    converges(bare)
    assert [entry for entry in bare.hub.log()[before:] if entry["status"] == 206], "nothing was continued"


def test_packages_that_do_not_fit_beside_the_weights_are_refused_while_they_come(bare: GpuFleet) -> None:
    bare.host.machine.fill_disk(leave_mib=FOR_WEIGHTS_AND_BUILD_MIB)
    said = error(bare.apply("--reboot", expect=1))
    assert re.search(r": the packages need .* free beside ", said["message"]), said
    assert not bare.host.says("command -v g++"), "it was installed nevertheless"
    assert bare.host.jobs() == []
    assert bare.host.part_bytes() > 0, "what came of the weights stays"
    bare.host.tell("rm /var/filler")
    converges(bare)
