"""A lab: machines, their network and its servers. Up, down and list."""

from __future__ import annotations

import keyword
import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigup.errors import HostFailed, InputError
from rigup.lab import access, base, ids, prerequisites, process
from rigup.lab.base import Log
from rigup.lab.folder import LabFolder, LabRecord, lab_folders, make_folder, remove_tree, write
from rigup.lab.gpus import setup
from rigup.lab.gpus.description import rig_data
from rigup.lab.machine import Machine, dismantle
from rigup.lab.network import addresses, network
from rigup.lab.packages import nvidia_repository

NAME = re.compile(r"[a-z][a-z0-9]{0,20}")
DISK = re.compile(r"[1-9][0-9]*[mg]")
OTHER_SSH_PORT = 2222
SERVER_SECONDS = 30
SERVERS = {"packages": "rigup.lab.packages.proxy", "forwarder": "rigup.lab.network.forwarder"}


def _silent(line: str) -> None:
    """Discards a progress line."""


@dataclass(frozen=True)
class Lab:
    """A lab that is up. `Lab.up` creates one, `Lab.named` finds one."""

    record: LabRecord

    @classmethod
    def up(
        cls,
        name: str = "lab",
        hosts: int = 1,
        suite: str = "bookworm",
        disk: str = "4g",
        rig: str | Mapping[str, Any] | None = None,
        log: Log = _silent,
        hub: str | None = None,
        packages: Collection[str] = (),
    ) -> Lab:
        """Starts a lab and waits until every machine answers SSH; running machines are left alone.

        If that fails, a lab that was up stays as it was, without the machines to be added; a new lab's machines are
        ended. Its files stay for inspection.

        hosts: the minimum number of machines. log: called with each line of progress.
        rig: in the form of group_data, or "4x RTX 3090"; None for the lab's previous one.
        hub: for `hub` in the group_data of a new lab.
        packages: those of Debian that the machines of a new lab have from the start.
        disk: the size of each machine's disk, such as "600m" or "4g"; it uses memory as it fills.
        Raises MissingTool if a lab cannot run, InputError for an invalid argument, HostFailed for a failed boot.
        """
        _check(name, hosts, disk)
        prerequisites.check()
        wanted = rig_data(rig) if rig else None
        if wanted:
            setup.check(wanted)
        folder = LabFolder(name)
        with folder.locked():
            old = folder.record()
            if old and network.up(old):
                record = _larger(old, hosts, suite, disk, wanted)
                try:
                    cls(record)._bring_up(log)
                except BaseException:
                    cls(record)._take_back(old)
                    raise
            else:
                record = _new(folder, old, hosts, suite, disk, wanted, log, packages)
                try:
                    cls(record)._bring_up(log, overwrite=old is None or old.rig != record.rig, hub=hub)
                except BaseException:
                    _dismantle(folder)
                    raise
        return cls(record)

    def _bring_up(self, log: Log, overwrite: bool = False, hub: str | None = None) -> None:
        """Starts everything in the lab that does not run. overwrite: write group_data even if it exists."""
        record, folder = self.record, self.folder
        prerequisites.make_room(sum(lab.record.hosts for lab in Lab.all()), log)
        access.make_key(folder.key)
        for machine in self.machines:
            make_folder(machine.folder)
            access.make_key(machine.folder / "ssh_host_ed25519_key")
        if record.rig:
            setup.provide(record, record.rig)
        self._write_access(overwrite, hub)
        for server in SERVERS:
            if process.running(folder.path / f"{server}.pid") is None:
                process.start(folder.path, server, SERVERS[server], record.name)
        for machine in self.machines:
            machine.start()
        _wait_for_servers(record, folder)
        for machine in self.machines:
            if machine.cable.plugged:
                machine.wait_for_ssh()
                log(f"{machine.name} answers SSH at {machine.address}")
            else:
                log(f"not waiting for {machine.name}: its cable is cut")

    def _take_back(self, old: LabRecord) -> None:
        """Restores the lab as it was before machines were added."""
        for machine in self.machines[old.hosts :]:
            process.stop(machine.folder / "holder.pid")
            dismantle(old.number, machine.index)
        self.folder.keep(old)
        Lab(old)._write_access()

    def _write_access(self, overwrite: bool = False, hub: str | None = None) -> None:
        record, folder = self.record, self.folder
        keys = {m.index: m.folder / "ssh_host_ed25519_key.pub" for m in self.machines}
        known = {index: key.read_text() for index, key in keys.items() if key.exists()}
        write(folder.known_hosts, access.known_hosts(record, known))
        write(folder.ssh_config, access.ssh_config(record))
        settings = {"hub": hub} if hub else {}
        settings |= nvidia_repository.settings(record.suite) if record.rig else {}
        access.write_inventory(record, settings, overwrite)

    @classmethod
    def named(cls, name: str) -> Lab:
        """The lab of that name; raises InputError if it does not exist."""
        return cls(LabFolder(name).existing())

    @classmethod
    def all(cls, log: Log = _silent) -> list[Lab]:
        """Every lab of this user; reports and skips those with an unreadable record."""
        labs = []
        for folder in lab_folders():
            try:
                labs.append(cls(folder.existing()))
            except InputError as error:
                log(f"{error.message} ({error.hint})")
        return labs

    @property
    def folder(self) -> LabFolder:
        """Its files: ssh_config, known_hosts, id_ed25519, inventory.py and group_data/."""
        return LabFolder(self.record.name)

    @property
    def machines(self) -> list[Machine]:
        return [Machine(self.record, index) for index in range(1, self.record.hosts + 1)]

    def machine(self, name: str) -> Machine:
        """The machine of that host name; raises InputError if it does not exist."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        names = ", ".join(machine.name for machine in self.machines)
        raise InputError(f"machine {name} does not exist in lab {self.record.name} ({names})", "rigup lab list")

    def down(self) -> None:
        """Ends every process of the lab and removes its machines, network and files; also those of a failed `up`."""
        take_down(self.record.name)


def take_down(name: str) -> None:
    """Takes a lab down, even with a record of another rigup version; raises InputError if it does not exist."""
    folder = LabFolder(name)
    if folder not in lab_folders():
        raise folder.unknown()
    prerequisites.check()
    with folder.locked():
        _dismantle(folder)
        remove_tree(folder.path)


def _dismantle(folder: LabFolder) -> None:
    """Ends every process with a pid file in a lab's folder, the machines, and the network."""
    for pid_file in folder.path.rglob("*.pid"):
        process.stop(pid_file)
    fields = folder.fields()
    number = fields.get("number")
    # If this lab's network is gone, another lab may have its number: then nothing under it belongs to this lab.
    if isinstance(number, int) and network.identity(number) in (fields.get("network"), 0):
        for machine in folder.machines():
            dismantle(number, int(machine.name))
        network.release(number)


def _check(name: str, hosts: int, disk: str) -> None:
    if not NAME.fullmatch(name):
        raise InputError(
            f"--name: {name} must consist of lower-case letters and digits and start with a letter", "--name lab"
        )
    if keyword.iskeyword(name):
        raise InputError(f"--name: {name} is a Python keyword and cannot name an inventory group", "--name lab")
    if not 1 <= hosts <= addresses.MOST_MACHINES:
        raise InputError(f"--hosts: {hosts} is not between 1 and {addresses.MOST_MACHINES}", "--hosts 2")
    if not DISK.fullmatch(disk):
        raise InputError(f'--disk: {disk} is not a size such as "600m" or "4g"', "--disk 4g")


def _check_names(name: str, hosts: int) -> None:
    """Raises InputError if a machine would have the name of another lab's: lab1 may have a 1, lab an 11."""
    own = {f"{name}{index}" for index in range(1, hosts + 1)}
    for lab in Lab.all():
        taken = [machine.name for machine in lab.machines if machine.name in own and lab.record.name != name]
        if taken:
            message = f"--name: {name}: lab {lab.record.name} already has a machine {taken[0]}"
            raise InputError(message, f"--name {name}x")


def _larger(old: LabRecord, hosts: int, suite: str, disk: str, rig: dict[str, Any] | None) -> LabRecord:
    """The record of a running lab, saved, with more machines if needed; raises InputError for other settings."""
    if (old.suite, old.disk) != (suite, disk):
        has = f"lab {old.name} is running with --suite {old.suite} --disk {old.disk}"
        raise InputError(f"{has}, not --suite {suite} --disk {disk}", f"rigup lab down {old.name}")
    if rig not in (None, old.rig):
        has = "other GPUs" if old.rig else "no GPUs"
        raise InputError(f"--rig: lab {old.name} is running with {has}", f"rigup lab down {old.name}")
    record = old.model_copy(update={"hosts": max(hosts, old.hosts)})
    _check_names(record.name, record.hosts)
    LabFolder(old.name).keep(record)
    return record


def _new(
    folder: LabFolder,
    old: LabRecord | None,
    hosts: int,
    suite: str,
    disk: str,
    rig: dict[str, Any] | None,
    log: Log,
    packages: Collection[str],
) -> LabRecord:
    """The record of a new lab, saved, and its network; `old` is a record of a lab that is no longer up."""
    _check_names(folder.name, hosts)
    if old:
        _dismantle(folder)  # its network is gone, but parts of it may remain
    image = base.ensure(suite, log, packages=packages)
    ids.check(base.image(image))
    number = network.allocate()
    try:
        record = LabRecord(
            name=folder.name,
            number=number,
            network=network.identity(number),
            first_id=ids.first_id(number),
            suite=suite,
            base=image,
            disk=disk,
            hosts=hosts,
            ssh_port=_ssh_port(number),
            rig=rig or (old.rig if old else None),
        )
        folder.keep(record)
    except BaseException:
        network.release(number)
        raise
    return record


def _ssh_port(number: int) -> int:
    """22, or another port if a server of this machine uses 22 on every address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((addresses.loopback_address(number, 1), addresses.SSH_PORT))
        except OSError:
            return OTHER_SSH_PORT
    return addresses.SSH_PORT


def _wait_for_servers(record: LabRecord, folder: LabFolder) -> None:
    """Waits until the lab's package server answers; raises HostFailed if a server of the lab has ended."""
    pid_files = [folder.path / f"{server}.pid" for server in SERVERS]

    def ended() -> list[Path]:
        return [pid_file for pid_file in pid_files if process.running(pid_file) is None]

    packages = (addresses.hub_address(record.number), addresses.PACKAGE_PORT)
    listening = process.wait_for(lambda: bool(ended()) or network.answers(record.number, packages), SERVER_SECONDS)
    for pid_file in ended() if listening else pid_files:
        log = pid_file.with_suffix(".log")
        raise HostFailed(f"lab {record.name}: its {pid_file.stem} server failed\n{process.tail(log)}", f"see {log}")
