"""What runs on a host side by side, broken at any moment: a plain apply puts everything right.

A compilation, an installation and a download; and the driver, with DKMS and its reboot, beside a download. The engines
are stand-ins, of the sources that are compiled and of the wheels that are installed; GPUs and NVIDIA's repository are
the lab's; apt, dpkg, DKMS, systemd and the reboot are real.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from tests import tiny_minimax_m2 as tiny
from tests.lab.fleet import FILE_BYTES, FILES, Fleet, wait_for
from tests.lab.fleet_fixtures import made_site
from tests.lab.gpu_fleet import OLD, GpuFleet, error, made_gpu_fleet
from tests.lab.installed_fleet import MEMORY_GIB, Installed, provide

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "weights")]
with_builds = pytest.mark.rests_on("builds from source", "environments")
with_driver = pytest.mark.rests_on("driver")

# bytes a second of each transfer: all jobs must have begun, and the driver be there, before the weights are
SLOW, SLOWER = 400_000, 60_000
LEASE = "/run/rigup/lease/lease.json"
SSHD = "/etc/ssh/sshd_config.d/zz-test.conf"
KINDS = {"rigup-build-llama", "rigup-build-vllm", "rigup-weights"}
FOR_WEIGHTS_AND_BUILD_MIB = 2 * 1024 + 36
"""What both need, and 12 MiB: enough for the lab's small packages of the driver, not for a compiler."""


class TwoServices(Installed):
    """A fleet whose host serves one model by each stand-in engine."""

    def __init__(self, lab: Lab, hub: StandInHub, root: Path, cache: Path) -> None:
        super().__init__(lab, hub, root, cache)
        self.compiled = (root / "rigup.lock").read_text().removeprefix("schema = 1\n")

    @property
    def served(self) -> Path:
        return self.root.parent / "served"

    def describe_both(self) -> None:
        """Writes the fleet and its lock."""
        self.lock()
        with (self.root / "rigup.lock").open("a") as file:
            file.write(self.compiled)
        Fleet.describe(self, rig={"host_memory_gib": MEMORY_GIB})
        second = {"model": tiny.MODEL, "engine": "vllm", "version": "0.32.0", "context": 2048, "port": 8001}
        with (self.root / "group_data/boxes.py").open("a") as file:
            file.write(f'services["tiny"] = {second!r}\nwheelhouse = "house"\n')

    def all_at_work(self) -> bool:
        """Whether the host compiles, installs and downloads."""
        running = {kind for kind in KINDS for job in self.host.jobs() if job.startswith(kind)}
        return running == KINDS and 0 < self.host.part_bytes() < FILE_BYTES

    def converges(self) -> None:
        super().converges()
        assert self.host.answers(8001)
        assert self.apply().json["hosts"][0]["state"] == "unchanged"


@pytest.fixture(scope="module")
def made(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoServices]:
    """One machine, and what both engines are made of."""
    with made_site(tmp_path_factory.mktemp("site"), f"three{os.getpid()}", hosts=1) as site:
        fleet = TwoServices(*site)
        provide(fleet.root, fleet.cache, fleet.served)
        fleet.describe_both()
        fleet.apply()
        yield fleet


@pytest.fixture
def bare(made: TwoServices) -> Iterator[TwoServices]:
    """The machine with nothing of rigup's but packages, where build and installation will wait, and a slow hub."""
    made.end_runs()
    made.host.wipe()
    made.host.tell("rm -rf /var/cache/rigup")
    made.forget_builds()
    made.host.hold_build()
    made.hub.faults(bytes_per_second=SLOW)
    yield made
    made.end_runs()
    made.hub.faults()
    made.host.machine.heal()
    made.host.tell(f"rm -f {SSHD}; systemctl restart ssh")


def at_work(fleet: TwoServices) -> None:
    wait_for(fleet.all_at_work, "a build, an installation and a download", seconds=150)


def finish(fleet: TwoServices) -> None:
    """Nothing stands in the way any more, and a plain apply must do."""
    fleet.host.release_build()
    fleet.hub.faults()
    fleet.converges()


def whole_files(fleet: Fleet, before: int) -> int:
    """How many files of the first checkpoint the hub has sent whole since its log was that long."""
    log = fleet.hub.log()[before:]
    return sum(entry["status"] == 200 and entry["bytes"] == FILE_BYTES for entry in log)


def kill_at_ten_moments(fleet: Fleet, seed: int, first: float, last: float, *words: str) -> None:
    """The moments are random, but the same each time; some lie before the first step, some behind the last."""
    moments = random.Random(seed)
    for number in range(10):
        run = fleet.start("apply", "--yes", *words)
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(moments.uniform(first, last))
        if run.process.poll() is None:
            run.kill()
        if number == 5:
            fleet.host.release_build()


@with_builds
@pytest.mark.parametrize("sessions", [10, 1])
def test_all_go_on_at_the_same_time_and_the_start_waits_for_them(bare: TwoServices, sessions: int) -> None:
    """sessions: how many the SSH server allows at a time."""
    bare.host.tell(f"echo MaxSessions {sessions} >{SSHD}; systemctl restart ssh")
    run = bare.start("apply", "--yes", "--json")
    at_work(bare)
    bare.host.release_build()
    run.wait_to_say("waiting for weights")
    bare.hub.faults()
    assert run.wait() == 0, run.text
    (result,) = run.json["hosts"]
    beside = {step["step"]: step["beside"] for step in result["steps"]}
    assert beside["weights"] and not beside["base"] and not beside["start"]
    assert [step["step"] for step in result["steps"] if step["critical"]] == ["base", "weights", "start"]
    assert [change["role"] for change in result["changes"]][-1] == "service"
    again = bare.apply().json["hosts"][0]
    assert (again["state"], again["changes"], again["steps"]) == ("unchanged", [], [])


@with_builds
def test_kill_9_while_three_are_at_work(bare: TwoServices) -> None:
    first, before = bare.start("apply", "--yes"), len(bare.hub.log())
    at_work(bare)
    first.kill()
    jobs = bare.host.jobs()

    second = bare.start("apply", "--yes", "--json")
    second.wait_to_say("compiling")
    assert sorted(bare.host.jobs()) == sorted(jobs)
    bare.host.release_build()
    bare.hub.faults()
    assert second.wait() == 0, second.text
    assert whole_files(bare, before) <= len(FILES), "files came more than once"
    bare.converges()


@with_builds
def test_the_disk_fills_while_three_write(bare: TwoServices) -> None:
    run = bare.start("apply", "--yes")
    at_work(bare)
    bare.host.machine.fill_disk(leave_mib=5)
    run.wait_to_say("disk full", seconds=120)
    bare.host.release_build()  # what is compiled and installed is written to the full disk now
    assert run.wait() == 1, run.text
    assert "Traceback" not in run.text
    assert bare.host.jobs() == []
    bare.host.tell("rm /var/filler")
    finish(bare)


@with_builds
def test_ctrl_c_while_three_are_at_work(bare: TwoServices) -> None:
    run = bare.start("apply", "--yes")
    at_work(bare)
    run.interrupt()
    assert run.wait(60) == 130, run.text
    assert "Traceback" not in run.text
    assert bare.host.jobs() == []
    assert not bare.host.says(f"test -e {LEASE}")
    assert bare.host.part_bytes() > 0
    finish(bare)


@with_builds
def test_the_network_is_cut_while_three_are_at_work_and_comes_back(bare: TwoServices) -> None:
    run = bare.start("apply", "--yes")
    at_work(bare)
    builds = sorted(bare.host.jobs("build"))  # weights follow one another
    bare.host.machine.cut()
    run.wait_to_say("connection lost", seconds=120)
    bare.host.machine.heal()
    wait_for(lambda: bare.host.says("true"), "the host's SSH")
    wait_for(bare.all_at_work, "a build, an installation and a download, still")
    assert sorted(bare.host.jobs("build")) == builds
    bare.host.release_build()
    bare.hub.faults()
    assert run.wait() == 0, run.text
    bare.converges()


@with_builds
def test_the_power_goes_while_three_are_at_work(bare: TwoServices) -> None:
    run = bare.start("apply", "--yes")
    at_work(bare)
    before = len(bare.hub.log())
    bare.host.machine.power_off()
    bare.host.machine.power_on()
    bare.host.release_build()
    bare.hub.faults()
    assert run.wait() in (0, 1), run.text
    assert "Traceback" not in run.text
    bare.converges()
    assert [entry for entry in bare.hub.log()[before:] if entry["status"] == 206], "nothing was continued"


@with_builds
@pytest.mark.slow
def test_kill_9_at_ten_moments(bare: TwoServices) -> None:
    before = len(bare.hub.log())
    kill_at_ten_moments(bare, 3, 0.5, 12)
    finish(bare)
    assert whole_files(bare, before) <= len(FILES), "files came more than once"


@pytest.fixture
def driverless(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """A machine with cards and nothing installed, and a hub that takes longer than driver and reboot."""
    with made_gpu_fleet(tmp_path_factory, "overlap", packages=()) as fleet:
        fleet.hub.faults(bytes_per_second=SLOWER)
        yield fleet


def installing_beside_a_download(fleet: GpuFleet) -> bool:
    """Whether apt is at work while the weights come."""
    return fleet.host.says("systemctl is-active --quiet rigup-apt") and fleet.host.part_bytes() > 0


def gets_its_driver(fleet: GpuFleet) -> None:
    """What a plain apply with leave to reboot must do after anything."""
    fleet.hub.faults()
    fleet.apply("--reboot", seconds=600)
    assert fleet.loaded() == OLD
    assert fleet.host.answers() and fleet.host.jobs() == []
    assert fleet.host.tell("dpkg --audit") == ""
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


@with_driver
@pytest.mark.slow
def test_kill_9_at_ten_moments_of_a_driver(driverless: GpuFleet) -> None:
    before = len(driverless.hub.log())
    kill_at_ten_moments(driverless, 10, 2, 20, "--reboot")
    gets_its_driver(driverless)
    assert whole_files(driverless, before) <= len(FILES), "files came more than once"


@with_driver
@pytest.mark.slow
def test_the_power_goes_while_the_driver_is_installed(driverless: GpuFleet) -> None:
    run = driverless.start("apply", "--yes", "--reboot")
    run.wait_to_say(f"installing {OLD}", seconds=240)
    wait_for(lambda: installing_beside_a_download(driverless), "the driver's packages and a download")
    before = len(driverless.hub.log())
    driverless.host.machine.power_off()
    driverless.host.machine.power_on()
    assert run.wait(600) in (0, 1), run.text
    assert "Traceback" not in run.text
    gets_its_driver(driverless)
    assert [entry for entry in driverless.hub.log()[before:] if entry["status"] == 206], "nothing was continued"


@with_driver
@pytest.mark.slow
def test_packages_that_do_not_fit_beside_the_weights_are_refused_while_they_come(driverless: GpuFleet) -> None:
    driverless.host.machine.fill_disk(leave_mib=FOR_WEIGHTS_AND_BUILD_MIB)
    said = error(driverless.apply("--reboot", expect=1))
    assert re.search(r": the packages need .* free beside ", said["message"]), said
    assert not driverless.host.says("command -v g++"), "it was installed nevertheless"
    assert driverless.host.jobs() == []
    assert driverless.host.part_bytes() > 0, "what came of the weights stays"
    driverless.host.tell("rm /var/filler")
    gets_its_driver(driverless)
