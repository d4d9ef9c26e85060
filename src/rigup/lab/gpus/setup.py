"""Sets up a lab's simulated GPUs: `Lab.up` uses it before machines start, and holders before machines boot."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigup.errors import HostFailed
from rigup.lab import process
from rigup.lab.folder import LabFolder, LabRecord, write
from rigup.lab.gpus.description import FILE, LOAD_UNIT, NVML, RIG, describe
from rigup.lab.network import network
from rigup.lab.network.addresses import hub_address
from rigup.lab.packages import nvidia_repository
from rigup.lab.packages.nvidia_repository import SERVER

SERVER_SECONDS = 30
PROGRAMS = {
    "usr/local/lib/lab/nvidia-load": "nvidia-load",
    "usr/local/sbin/modprobe": "modprobe",
    "usr/local/sbin/rmmod": "modprobe",
}
"""Programs that a machine with GPUs has from the start, with their files in nvml/."""
FOLDERS = ("/sys/module", "/sys/firmware")
"""Folders that a machine with GPUs writes to; the others have none of these in their /sys."""


def check(rig: Mapping[str, Any]) -> None:
    """Raises InputError for an unknown rig, MissingTool if this machine lacks tools to simulate it."""
    describe(rig, "")
    nvidia_repository.ensure()


def provide(record: LabRecord, rig: Mapping[str, Any]) -> None:
    """Gives every machine of a new lab the GPUs of a rig, and starts the package repository of their driver."""
    folder = LabFolder(record.name)
    for index in range(1, record.hosts + 1):
        machine = folder.machine(index)
        if process.running(machine / "holder.pid") is None:
            write(machine / FILE, describe(rig, f"{record.name}{index}"))
    repository = nvidia_repository.ensure()
    if process.running(folder.path / f"{SERVER}.pid") is None:
        process.start(folder.path, SERVER, "rigup.lab.packages.nvidia_repository", record.name, str(repository))
    listening = (hub_address(record.number), nvidia_repository.PORT)
    if not process.wait_for(lambda: network.answers(record.number, listening), SERVER_SECONDS):
        log = folder.path / f"{SERVER}.log"
        raise HostFailed(f"lab {record.name}: its package repository failed\n{process.tail(log)}", f"see {log}")


def fit_out(folder: Path, root: Path) -> None:
    """Puts a machine's GPUs into its root before its first boot; `folder` is the machine's."""
    description = folder / FILE
    if not description.exists():
        return
    (root / RIG).parent.mkdir(parents=True, exist_ok=True)
    (root / RIG).write_text(description.read_text())
    # The kernel that boots: a machine that builds a driver has one, other machines do not need it.
    (root / "boot" / f"vmlinuz-{os.uname().release}").touch()
    for place, source in PROGRAMS.items():
        program = root / place
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text((NVML / source).read_text())
        program.chmod(0o755)
    units = root / "etc/systemd/system"
    (units / LOAD_UNIT).write_text((NVML / LOAD_UNIT).read_text())
    wanted = units / "sysinit.target.wants" / LOAD_UNIT
    wanted.parent.mkdir(exist_ok=True)
    wanted.symlink_to(f"../{LOAD_UNIT}")
    nvidia_repository.fit_out(root)


def folders(folder: Path) -> tuple[str, ...]:
    """The folders, empty at each boot, that a machine with GPUs is to have; `folder` is the machine's."""
    return FOLDERS if (folder / FILE).exists() else ()
