"""Eight cards behind NVLink 5 switches: the fabric manager is of the driver's version; with plain pyinfra, too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rigup.fleet.inventory import toolkit_root
from rigup.lab.lab import Lab
from rigup.lock import load_lock

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MANAGER = "dpkg-query -W -f '${Version}' nvidia-fabricmanager"
FABRIC = "cat /run/lab-gpus/gpu7.fabric_state"


@pytest.fixture(scope="module")
def lab(labs_can_run: None) -> Iterator[Lab]:
    """One machine with eight B200 and no driver."""
    lab = Lab.up(f"switches{os.getpid()}", rig="8x B200")
    try:
        yield lab
    finally:
        lab.down()


def pyinfra(lab: Lab) -> str:
    """Runs deploy/driver.py from the root of the toolkit; returns what it said."""
    inventory = str(lab.folder.path / "inventory.py")
    words = [sys.executable, "-m", "pyinfra", inventory, "deploy/driver.py", "--data", "reboot=yes", "-y"]
    done = subprocess.run(words, cwd=toolkit_root(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_fabric_manager_follows_the_driver(lab: Lab) -> None:
    (machine,) = lab.machines
    locked = load_lock(toolkit_root() / "rigup.lock").driver
    assert locked is not None
    pyinfra(lab)
    assert machine.ssh(MANAGER).stdout == f"{locked.version}-1"
    assert machine.ssh("cat /etc/modules-load.d/rigup-nvidia.conf; dpkg-query -W nvlsm").stdout.split()[-3] == "ib_umad"
    assert machine.ssh(FABRIC).stdout.strip() == "3", "the fabric is not ready"

    words = "apt-get install -q -y --allow-downgrades nvidia-fabricmanager=580.95.05-1"
    machine.ssh(f"DEBIAN_FRONTEND=noninteractive {words}; systemctl restart nvidia-fabricmanager", check=False)
    assert machine.ssh("systemctl is-active nvidia-fabricmanager").stdout.strip() != "active"
    boot = machine.boot_id()
    assert "580.95.05 is installed" in pyinfra(lab)
    assert machine.ssh(MANAGER).stdout == f"{locked.version}-1"
    assert machine.ssh("systemctl is-active nvidia-fabricmanager").stdout.strip() == "active"
    assert machine.boot_id() == boot
