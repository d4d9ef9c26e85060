"""A build and a download on one host at the same time: what breaks both is put right by a plain apply."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.lab.fleet import FILE_BYTES, FILES, Fleet, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "weights", "builds from source")]

# bytes a second of each transfer: on a busy machine, too, the build begins long before a file is here
SLOW = 30_000
LEASE = "/run/rigup/lease/lease.json"


@pytest.fixture
def bare(fleet: Fleet) -> Iterator[Fleet]:
    """A machine with nothing of rigup's but packages, where the build will wait in its middle, and a slow hub."""
    if not fleet.recorded_builds():
        fleet.host.wipe()
        fleet.apply()
    fleet.host.wipe()
    fleet.forget_builds()
    fleet.host.hold_build()
    fleet.hub.faults(bytes_per_second=SLOW)
    yield fleet
    fleet.host.tell("rm -f /etc/ssh/sshd_config.d/zz-test.conf; systemctl restart ssh")


def both_at_work(fleet: Fleet) -> bool:
    """Whether the host compiles and downloads, and neither is near its end."""
    kinds = {job.split("-")[1] for job in fleet.host.jobs()}
    return kinds == {"build", "weights"} and 0 < fleet.host.part_bytes() < 2 * FILE_BYTES


def wait_for_both(fleet: Fleet) -> None:
    """Waits until the host compiles and downloads; on a busy machine the build begins late."""
    wait_for(lambda: both_at_work(fleet), "a build and a download", seconds=150)


@pytest.mark.parametrize("sessions", [10, 1])
def test_both_go_on_at_the_same_time_and_the_start_waits_for_both(bare: Fleet, sessions: int) -> None:
    """sessions: how many the SSH server allows at a time."""
    bare.host.tell(f"echo MaxSessions {sessions} >/etc/ssh/sshd_config.d/zz-test.conf; systemctl restart ssh")
    run = bare.start("apply", "--yes", "--json")
    wait_for_both(bare)
    bare.host.release_build()
    run.wait_to_say("waiting for weights")
    bare.hub.faults()
    assert run.wait() == 0, run.text
    (result,) = run.json["hosts"]
    beside = {step["step"]: step["beside"] for step in result["steps"]}
    assert beside == {"base": False, "build": False, "weights": True, "start": False}
    assert [step["step"] for step in result["steps"] if step["critical"]] == ["base", "weights", "start"]
    assert [change["role"] for change in result["changes"]][-2:] == ["weights", "service"]
    again = bare.apply().json["hosts"][0]
    assert (again["state"], again["changes"], again["steps"]) == ("unchanged", [], [])


def test_kill_9_while_both_are_at_work(bare: Fleet) -> None:
    first, before = bare.start("apply", "--yes"), len(bare.hub.log())
    wait_for_both(bare)
    first.kill()
    jobs = bare.host.jobs()

    second = bare.start("apply", "--yes", "--json")
    second.wait_to_say("compiling")
    assert sorted(bare.host.jobs()) == sorted(jobs)
    bare.host.release_build()
    bare.hub.faults()
    assert second.wait() == 0, second.text
    whole = [entry for entry in bare.hub.log()[before:] if entry["status"] == 200 and entry["bytes"] == FILE_BYTES]
    assert len(whole) <= len(FILES), "files came more than once"
    bare.converges()


def test_ctrl_c_while_both_are_at_work(bare: Fleet) -> None:
    run = bare.start("apply", "--yes")
    wait_for_both(bare)
    run.interrupt()
    assert run.wait(60) == 130, run.text
    assert "Traceback" not in run.text
    assert bare.host.jobs() == []
    assert not bare.host.says(f"test -e {LEASE}")
    assert bare.host.part_bytes() > 0
    bare.host.release_build()
    bare.hub.faults()
    bare.converges()


def test_the_disk_fills_while_both_write(bare: Fleet) -> None:
    run = bare.start("apply", "--yes")
    wait_for_both(bare)
    bare.host.machine.fill_disk(leave_mib=5)
    run.wait_to_say("disk full", seconds=120)
    bare.host.tell("rm /var/filler")
    bare.host.release_build()
    assert run.wait() == 1, run.text
    assert bare.host.jobs() == []
    bare.hub.faults()
    bare.converges()


def test_the_network_is_cut_while_both_are_at_work_and_comes_back(bare: Fleet) -> None:
    run = bare.start("apply", "--yes")
    wait_for_both(bare)
    jobs = bare.host.jobs()
    bare.host.machine.cut()
    run.wait_to_say("connection lost", seconds=120)
    bare.host.machine.heal()
    wait_for(lambda: sorted(bare.host.jobs()) == sorted(jobs), "the same build and download")
    bare.host.release_build()
    bare.hub.faults()
    assert run.wait() == 0, run.text
    bare.converges()


def test_the_power_goes_while_both_are_at_work(bare: Fleet) -> None:
    run = bare.start("apply", "--yes")
    wait_for_both(bare)
    before = len(bare.hub.log())
    bare.host.machine.power_off()
    bare.host.machine.power_on()
    bare.host.release_build()
    bare.hub.faults()
    assert run.wait() in (0, 1), run.text
    assert "Traceback" not in run.text
    bare.converges()
    assert [entry for entry in bare.hub.log()[before:] if entry["status"] == 206], "nothing was continued"


@pytest.mark.slow
def test_kill_9_at_ten_moments(bare: Fleet) -> None:
    """The moments are random, but the same each time; some lie before the first step, some behind the last."""
    moments, before = random.Random(18), len(bare.hub.log())
    for number in range(10):
        run = bare.start("apply", "--yes")
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(moments.uniform(0.5, 10))
        if run.process.poll() is None:
            run.kill()
        if number == 5:
            bare.host.release_build()
    bare.hub.faults()
    bare.converges()
    whole = [entry for entry in bare.hub.log()[before:] if entry["status"] == 200 and entry["bytes"] == FILE_BYTES]
    assert len(whole) <= len(FILES), "files came more than once"
