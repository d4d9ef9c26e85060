"""A compilation, an installation and a download on one host at the same time: a plain apply puts everything right.

Both engines are stand-ins, of the sources that are compiled and of the wheels that are installed; all else is real.
tests/lab/test_side_by_side.py has the same for a compilation and a download.
"""

from __future__ import annotations

import os
import random
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
from tests.lab.installed_fleet import MEMORY_GIB, Installed, provide

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("weights", "builds from source", "environments")]

SLOW = 400_000
LEASE = "/run/rigup/lease/lease.json"
KINDS = {"rigup-build-llama", "rigup-build-vllm", "rigup-weights"}


class Folders:
    """pytest's factory of temporary folders, with known names."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def mktemp(self, name: str) -> Path:
        """A folder of that name."""
        (self.root / name).mkdir()
        return self.root / name


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
    folder = tmp_path_factory.mktemp("three")
    with made_site(Folders(folder), f"three{os.getpid()}", hosts=1) as site:  # type: ignore[arg-type]
        fleet = TwoServices(*site)
        provide(fleet.root, fleet.cache, fleet.served)
        fleet.describe_both()
        fleet.apply()
        yield fleet


@pytest.fixture
def bare(made: TwoServices) -> Iterator[TwoServices]:
    """The machine with nothing of rigup's but packages, where build and installation will wait, and a slow hub."""
    made.host.wipe()
    made.host.tell("rm -rf /var/cache/rigup")
    made.forget_builds()
    made.host.hold_build()
    made.hub.faults(bytes_per_second=SLOW)
    yield made
    made.end_runs()
    made.hub.faults()
    made.host.machine.heal()


def at_work(fleet: TwoServices) -> None:
    wait_for(fleet.all_at_work, "a build, an installation and a download")


def finish(fleet: TwoServices) -> None:
    """Nothing stands in the way any more, and a plain apply must do."""
    fleet.host.release_build()
    fleet.hub.faults()
    fleet.converges()


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


def test_the_network_is_cut_while_three_are_at_work_and_comes_back(bare: TwoServices) -> None:
    run = bare.start("apply", "--yes")
    at_work(bare)
    jobs = sorted(bare.host.jobs())
    bare.host.machine.cut()
    run.wait_to_say("connection lost", seconds=120)
    bare.host.machine.heal()
    wait_for(lambda: bare.host.says("true"), "the host's SSH")
    wait_for(lambda: sorted(bare.host.jobs()) == jobs, "the same three jobs")
    bare.host.release_build()
    bare.hub.faults()
    assert run.wait() == 0, run.text
    bare.converges()


def test_the_power_goes_while_three_are_at_work(bare: TwoServices) -> None:
    run = bare.start("apply", "--yes")
    at_work(bare)
    bare.host.machine.power_off()
    bare.host.machine.power_on()
    bare.host.release_build()
    bare.hub.faults()
    assert run.wait() in (0, 1), run.text
    assert "Traceback" not in run.text
    finish(bare)


def test_kill_9_at_ten_moments(bare: TwoServices) -> None:
    """The moments are random, but the same each time; some lie before the first step, some behind the last."""
    moments, before = random.Random(3), len(bare.hub.log())
    for number in range(10):
        run = bare.start("apply", "--yes")
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(moments.uniform(0.5, 12))
        if run.process.poll() is None:
            run.kill()
        if number == 5:
            bare.host.release_build()
    finish(bare)
    whole = [entry for entry in bare.hub.log()[before:] if entry["status"] == 200 and entry["bytes"] == FILE_BYTES]
    assert len(whole) <= len(FILES), "files came more than once"
