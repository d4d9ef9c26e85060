"""Weights onto a booted machine, under systemd as on any host, while the machine and its network fail."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.lab.hub.content import commit_id
from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from rigup.lab.machine import Machine
from rigup.programs import program_file
from tests.lab.fleet import wait_for
from tests.lab.fleet_fixtures import made_lab

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "weights")]

REPO = "org/model"
SIZE = 4_000_000
SLOW, FAST = 100_000, 4_000_000
"""Bytes a second that the hub sends: SLOW until what happens to the machine has happened, then FAST."""
FOLDER = f"/var/lib/rigup/weights/{REPO}"
DEADLINE_S = 60
STALL_S = 3
CURL_AVERAGES_S = 5
OUTAGE_S = CURL_AVERAGES_S + 4 * STALL_S
"""Long enough for the transfer to be given up, whose rate is an average, and for the next try to find no network."""


class Host:
    """A machine with the programs and one job on it, and the hub that it fetches from."""

    def __init__(self, machine: Machine, hub: StandInHub, root: Path) -> None:
        self.machine, self.hub = machine, hub
        content = random.Random(root.as_posix()).randbytes(SIZE)
        (root / REPO).mkdir(parents=True)
        (root / REPO / "model.gguf").write_bytes(content)
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.revision = commit_id({"model.gguf": self.sha256})
        self.part = f"{FOLDER}/{self.revision}.incoming/parts/model.gguf.part"
        for program in (
            "fetch_weights.py",
            "weights_folder.py",
            "curl_transfers.py",
            "hub_access.py",
            "unit_status.py",
        ):
            text = program_file(program).read_text()
            self.tell(f"mkdir -p /opt/rigup/programs; cat > /opt/rigup/programs/{program}", text)
        files = [{"path": "model.gguf", "size": SIZE, "sha256": self.sha256}]
        place = {"hub": hub.url, "repo": REPO, "revision": self.revision, "folder": f"{FOLDER}/{self.revision}"}
        self.tell("cat > /opt/rigup/job.json", json.dumps({**place, "files": files, "stall_s": STALL_S}))
        self.tell(f"useradd --system rigup || true; install -d -o rigup -g rigup {FOLDER}")

    def tell(self, command: str, text: str | None = None) -> str:
        done = self.machine.ssh(command, input=text)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self) -> None:
        """Starts the fetch as a unit, as the worker, able to write to the repository's folder only."""
        sandbox = f"-p ProtectSystem=strict -p ReadWritePaths={FOLDER} -p NotifyAccess=all -p NoNewPrivileges=yes"
        run = f"systemd-run --quiet --no-block --collect --unit=fetch --service-type=exec --uid=rigup {sandbox}"
        self.tell(f"{run} python3 /opt/rigup/programs/fetch_weights.py /opt/rigup/job.json")
        wait_for(lambda: self.part_size() > 0, "a part")

    def part_size(self) -> int:
        return int(self.tell(f"stat -c %s {self.part} 2>/dev/null || echo 0"))

    def complete(self) -> bool:
        done = self.machine.ssh("python3 /opt/rigup/programs/fetch_weights.py --check --deep /opt/rigup/job.json")
        return done.returncode == 0

    def ranges(self) -> list[str]:
        return [entry["range"] for entry in self.hub.log() if entry["status"] == 206]


@pytest.fixture(scope="module")
def lab(labs_can_run: None) -> Iterator[Lab]:
    with made_lab(f"weights{os.getpid()}", hosts=1) as made:
        yield made


@pytest.fixture
def host(lab: Lab, tmp_path: Path) -> Iterator[Host]:
    hub = StandInHub.start(tmp_path / "root", tmp_path / "state", lab=lab.record.name)
    host = Host(lab.machines[0], hub, tmp_path / "root")
    hub.faults(bytes_per_second=SLOW)
    yield host
    host.machine.heal()
    host.tell(f"systemctl stop fetch 2>/dev/null; rm -rf {FOLDER}")
    hub.stop()


def test_a_reboot_on_the_way_costs_only_what_was_on_the_way(host: Host) -> None:
    host.start()
    host.machine.reboot()
    assert not host.complete()
    assert host.part_size() > 0

    host.hub.faults(bytes_per_second=FAST)
    host.start()
    wait_for(host.complete, "the weights")
    assert len(host.ranges()) == 1


def test_a_power_cut_on_the_way_leaves_nothing_half(host: Host) -> None:
    host.start()
    host.machine.power_off()
    host.machine.power_on()
    assert not host.complete()

    host.hub.faults(bytes_per_second=FAST)
    host.start()
    wait_for(host.complete, "the weights")


def test_a_network_that_goes_away_and_comes_back_is_waited_for(host: Host) -> None:
    host.start()
    host.machine.cut()
    time.sleep(OUTAGE_S)
    host.hub.faults(bytes_per_second=FAST)
    host.machine.heal()

    wait_for(host.complete, "the weights")
    assert host.tell("systemctl is-active fetch || true") != "failed"
    assert host.ranges()


def test_status_is_what_systemd_shows(host: Host) -> None:
    host.start()
    host.hub.faults(bytes_per_second=FAST)

    shown = ""
    deadline = time.monotonic() + DEADLINE_S
    while not shown.endswith(f"/{SIZE} bytes") and time.monotonic() < deadline:
        shown = host.tell("systemctl show fetch --property=StatusText --value")
    done, total = shown.removesuffix(" bytes").split("/")
    assert 0 <= int(done) <= int(total) == SIZE
