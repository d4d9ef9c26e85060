"""Eight cards behind NVLink 5 switches: the fabric manager is of the driver's version; with plain pyinfra, too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rigup.facts.probe import Probe, parse
from rigup.facts.probe_script import script
from rigup.lab.gpus.simulated import SimulatedGpus
from rigup.lab.lab import Lab
from rigup.lab.machine import Machine
from rigup.lock import load_lock
from rigup.project.inventory import toolkit_root
from tests.lab.fleet import wait_for
from tests.lab.fleet_fixtures import made_lab

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.rests_on("the run", "driver")]

MANAGER = "dpkg-query -W -f '${Version}' nvidia-fabricmanager"
FABRIC = "cat /run/lab-gpus/gpu7.fabric_state"


@pytest.fixture(scope="module")
def lab(labs_can_run: None) -> Iterator[Lab]:
    """One machine with eight B200 and no driver."""
    with made_lab(f"switches{os.getpid()}", rig="8x B200") as made:
        yield made


def pyinfra(lab: Lab, expect: int = 0) -> str:
    """Runs deploy/driver.py from the root of the toolkit to this exit code; returns what it said."""
    inventory = str(lab.folder.path / "inventory.py")
    words = [sys.executable, "-m", "pyinfra", inventory, "deploy/driver.py", "--data", "reboot=yes", "-y"]
    done = subprocess.run(words, cwd=toolkit_root(), capture_output=True, text=True, timeout=240)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_fabric_manager_follows_the_driver(lab: Lab) -> None:
    (machine,) = lab.machines
    locked = load_lock(toolkit_root() / "rigup.lock").driver
    assert locked is not None
    SimulatedGpus(machine).fabric(seconds=8)
    pyinfra(lab)
    assert machine.ssh(MANAGER).stdout == f"{locked.version}-1"
    assert machine.ssh("cat /etc/modules-load.d/rigup-nvidia.conf; dpkg-query -W nvlsm").stdout.split()[-3] == "ib_umad"
    assert machine.ssh(FABRIC).stdout.strip() == "3", "the fabric was not waited for"

    words = "apt-get install -q -y --allow-downgrades nvidia-fabricmanager=580.95.05-1"
    machine.ssh(f"DEBIAN_FRONTEND=noninteractive {words}; systemctl restart nvidia-fabricmanager", check=False)
    assert machine.ssh("systemctl is-active nvidia-fabricmanager").stdout.strip() != "active"
    boot = machine.boot_id()
    assert "nvidia-fabricmanager 580.95.05 installed, not " in pyinfra(lab)
    assert machine.ssh(MANAGER).stdout == f"{locked.version}-1"
    assert machine.ssh("systemctl is-active nvidia-fabricmanager").stdout.strip() == "active"
    assert machine.boot_id() == boot


def test_a_fabric_that_is_not_ready_is_waited_for_and_one_that_fails_is_told(lab: Lab) -> None:
    (machine,) = lab.machines
    gpus = SimulatedGpus(machine)
    assert {gpu.fabric for gpu in probe(machine).gpus} == {"completed"}

    gpus.fabric(seconds=30)  # longer than a run takes to come to it, on a busy machine, too
    machine.ssh("systemctl restart nvidia-fabricmanager", check=True)
    assert {gpu.fabric for gpu in probe(machine).gpus} == {"in progress"}
    assert "fabric ready: in progress on GPU 0, 1, 2, 3, 4, 5, 6, 7" in pyinfra(lab)
    assert {gpu.fabric for gpu in probe(machine).gpus} == {"completed"}, "it was not waited for"

    gpus.fabric(error=999)
    machine.ssh("systemctl restart nvidia-fabricmanager", check=True)
    wait_for(lambda: machine.ssh(FABRIC).stdout.strip() == "3", "the fabric manager")
    assert {gpu.fabric for gpu in probe(machine).gpus} == {"failed: Unknown Error"}
    assert "fabric ready: failed: Unknown Error on GPU 0" in pyinfra(lab, expect=1)


def probe(machine: Machine) -> Probe:
    """What the probe says of it now."""
    return parse(machine.ssh("sh -s", input=script(), check=True).stdout.splitlines())
