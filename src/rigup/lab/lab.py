"""A lab: some machines, their network and what serves it. Up, down and list."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigup.errors import HostFailed, InputError
from rigup.lab import access, addresses, base, gpus_in_lab, inotify, network, nvidia_repository, prerequisites, process
from rigup.lab.base import Say
from rigup.lab.folder import LabFolder, LabRecord, lab_folders, make_folder, remove_tree, write
from rigup.lab.machine import Machine

NAME = re.compile(r"^[a-z][a-z0-9]{0,20}$")
DISK = re.compile(r"^[1-9][0-9]*[mg]$")
OTHER_SSH_PORT = 2222
SERVER_SECONDS = 30
SERVERS = ("packages", "forwarder")


def _silent(line: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Lab:
    """A lab that is up. `Lab.up` makes one, `Lab.named` finds one."""

    record: LabRecord

    @classmethod
    def up(
        cls,
        name: str = "lab",
        hosts: int = 1,
        suite: str = "bookworm",
        disk: str = "4g",
        rig: str | Mapping[str, Any] | None = None,
        say: Say = _silent,
    ) -> Lab:
        """Brings a lab up and waits until every machine answers SSH; what is up already stays as it is.

        Where that fails, the machines of a lab that was not up before end; its files stay, to be looked at.

        hosts: how many machines at least. rig: as in group_data, or "4x RTX 3090". say: takes progress, line by line.
        disk: the size of each machine's disk, as "600m" or "4g"; it takes memory as it fills.
        Raises MissingTool where a lab cannot run, InputError for a bad argument, HostFailed for a failed boot.
        """
        _check(name, hosts, disk)
        prerequisites.check()
        if rig:
            gpus_in_lab.check(rig)
        folder = LabFolder(name)
        with folder.locked():
            old = folder.record()
            was_up = old is not None and network.up(old)
            record = _record(folder, hosts, suite, disk, say)
            try:
                cls(record)._bring_up(rig, say)
            except BaseException:
                if not was_up:
                    cls(record)._dismantle()
                raise
        return cls(record)

    def _bring_up(self, rig: str | Mapping[str, Any] | None, say: Say) -> None:
        record, folder = self.record, self.folder
        inotify.make_room(sum(lab.record.hosts for lab in Lab.all()), say)
        access.make_key(folder.key)
        machines = [Machine(record, index) for index in range(1, record.hosts + 1)]
        for machine in machines:
            make_folder(machine.folder)
            access.make_key(machine.folder / "ssh_host_ed25519_key")
        if rig:
            gpus_in_lab.provide(record, rig)
        _write_access(folder, record, machines, rig)
        for server in SERVERS:
            if process.running(folder.path / f"{server}.pid") is None:
                process.start(folder.path, server, f"rigup.lab.{server}", record.name)
        for machine in machines:
            machine.start()
        _wait_for_servers(record, folder)
        for machine in machines:
            machine.wait_for_ssh()
            say(f"{machine.name} answers SSH at {machine.address}")

    @classmethod
    def named(cls, name: str) -> Lab:
        """The lab of that name; raises InputError where there is none."""
        return cls(LabFolder(name).existing())

    @classmethod
    def all(cls) -> list[Lab]:
        """Every lab of this user."""
        return [cls(record) for folder in lab_folders() if (record := folder.record())]

    @property
    def folder(self) -> LabFolder:
        """Its files: ssh_config, known_hosts, id_ed25519, inventory.py and group_data/."""
        return LabFolder(self.record.name)

    @property
    def machines(self) -> list[Machine]:
        return [Machine(self.record, index) for index in range(1, self.record.hosts + 1)]

    def machine(self, name: str) -> Machine:
        """The machine of that host name; raises InputError where the lab has none."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        names = ", ".join(machine.name for machine in self.machines)
        raise InputError(f"{name}: there is no such machine in lab {self.record.name} ({names})", "rigup lab list")

    def down(self) -> None:
        """Ends every process of the lab and removes its machines, network and files; also what a broken `up` left."""
        prerequisites.check()
        folder = self.folder
        with folder.locked():
            self._dismantle()
            remove_tree(folder.path)

    def _dismantle(self) -> None:
        """Ends every process with a pid file in the lab's folder, the machines, and the network."""
        for pid_file in self.folder.path.rglob("*.pid"):
            process.stop(pid_file)
        # The number of a lab whose network is gone may be another lab's by now: then all under that number is.
        if network.identity(self.record.number) in (self.record.network, 0):
            for machine in self.machines:
                machine.dismantle()
            network.release(self.record.number)


def _check(name: str, hosts: int, disk: str) -> None:
    if not NAME.match(name):
        raise InputError(f"--name: {name}: must be lower-case letters and digits, a letter first", "--name lab")
    if not 1 <= hosts <= addresses.MOST_MACHINES:
        raise InputError(f"--hosts: {hosts}: must be 1 to {addresses.MOST_MACHINES}", "--hosts 2")
    if not DISK.match(disk):
        raise InputError(f'--disk: {disk}: must be a size such as "600m" or "4g"', "--disk 4g")


def _record(folder: LabFolder, hosts: int, suite: str, disk: str, say: Say) -> LabRecord:
    """The record of a lab that is to be up: the one that is there, with more machines if need be, or a new one."""
    old = folder.record()
    if old and network.up(old):
        if (old.suite, old.disk) != (suite, disk):
            has = f"lab {old.name} is up with --suite {old.suite} --disk {old.disk}"
            raise InputError(f"{has}, not --suite {suite} --disk {disk}", f"rigup lab down {old.name}")
        record = old.model_copy(update={"hosts": max(hosts, old.hosts)})
    else:
        if old:
            Lab(old)._dismantle()  # its network is gone, something of it may not be
        image = base.ensure(suite, say)
        number = network.allocate()
        record = LabRecord(
            name=folder.name,
            number=number,
            network=network.identity(number),
            suite=suite,
            base=image,
            disk=disk,
            hosts=hosts,
            ssh_port=_ssh_port(number),
        )
    folder.keep(record)
    return record


def _ssh_port(number: int) -> int:
    """22, or another port where a server of this machine has 22 on every address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((addresses.loopback_address(number, 1), addresses.SSH_PORT))
        except OSError:
            return OTHER_SSH_PORT
    return addresses.SSH_PORT


def _wait_for_servers(record: LabRecord, folder: LabFolder) -> None:
    """Waits until packages can be had inside; raises HostFailed where a server of the lab has ended."""
    pid_files = [folder.path / f"{server}.pid" for server in SERVERS]

    def ended() -> list[Path]:
        return [pid_file for pid_file in pid_files if process.running(pid_file) is None]

    packages = (addresses.hub_address(record.number), addresses.PACKAGE_PORT)
    listening = process.wait_for(lambda: bool(ended()) or network.answers(record.number, packages), SERVER_SECONDS)
    for pid_file in ended() if listening else pid_files:
        log = pid_file.with_suffix(".log")
        raise HostFailed(f"lab {record.name}: its {pid_file.stem} server failed\n{process.tail(log)}", f"see {log}")


def _write_access(
    folder: LabFolder, record: LabRecord, machines: list[Machine], rig: str | Mapping[str, Any] | None
) -> None:
    keys = {m.index: (m.folder / "ssh_host_ed25519_key.pub").read_text() for m in machines}
    write(folder.known_hosts, access.known_hosts(record, keys))
    write(folder.ssh_config, access.ssh_config(record, folder))
    settings = nvidia_repository.settings(record.suite) if rig else None
    access.write_inventory(record, folder, folder.path, rig=rig, settings=settings)
