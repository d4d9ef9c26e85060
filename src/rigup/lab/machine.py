"""One machine of a lab, and the faults for a rehearsal: a cut cable, a power cut, a full disk."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rigup.errors import HostFailed, InputError
from rigup.lab import process
from rigup.lab.access import host_data
from rigup.lab.cgroup import Cgroup
from rigup.lab.folder import LabFolder, LabRecord
from rigup.lab.network import addresses, network

BOOT_SECONDS = 60
POWER_BUTTON = signal.SIGUSR1
"""To a machine's holder."""
OFF = "off"
"""A file in the machine's folder that exists while the power button has an effect."""
RATE = re.compile(r"^[1-9][0-9]*[kmg]bit$")


@dataclass(frozen=True)
class Machine:
    """Machine `index` (from 1) of the lab that `record` describes."""

    record: LabRecord
    index: int

    @property
    def name(self) -> str:
        """Its host name, and its name in the lab's ssh_config and inventory."""
        return f"{self.record.name}{self.index}"

    @property
    def address(self) -> str:
        """The loopback address at which this machine reaches the lab machine's SSH."""
        return addresses.loopback_address(self.record.number, self.index)

    @property
    def inner_address(self) -> str:
        """Its own address, which only the other machines of the lab can reach."""
        return addresses.machine_address(self.record.number, self.index)

    @property
    def inventory(self) -> tuple[str, dict[str, str | int]]:
        """The machine as an entry of a pyinfra inventory, as root."""
        return self.name, host_data(self.record, self.index)

    @property
    def lab(self) -> LabFolder:
        return LabFolder(self.record.name)

    @property
    def folder(self) -> Path:
        return self.lab.machine(self.index)

    @property
    def log(self) -> Path:
        """The console log of all boots."""
        return self.folder / "holder.log"

    @property
    def on(self) -> bool:
        """Whether it is powered on; it may still be booting."""
        return network.up(self.record) and self._cgroup.populated

    @property
    def cable(self) -> network.Cable:
        """The state of its network cable: plugged or cut, and its rate."""
        return network.read_cable(self.folder)

    @property
    def _holder(self) -> int | None:
        """The process that holds its disk, or None if it has ended."""
        return process.running(self.folder / "holder.pid")

    @property
    def _cgroup(self) -> Cgroup:
        return Cgroup(self.record.number, self.index)

    def ssh(
        self,
        command: str,
        user: str = "root",
        input: str | None = None,
        timeout: float | None = 120,
        options: tuple[str, ...] = (),
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a shell command over SSH with a checked host key; `options` are ssh's. Exit status 255 is ssh's own."""
        words = ["ssh", *options, "-F", str(self.lab.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
        return subprocess.run(
            [*words, f"{user}@{self.name}", command],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=check,
        )

    def boot_id(self) -> str:
        """The id of the current boot."""
        return self.ssh("cat /proc/sys/kernel/random/boot_id", check=True).stdout.strip()

    def reboot(self) -> None:
        """Reboots it like an administrator, and waits for SSH of the next boot."""
        before = self.boot_id()
        self.ssh("systemctl reboot")

        def rebooted() -> bool:
            try:
                done = self.ssh("cat /proc/sys/kernel/random/boot_id", options=("-o", "ConnectTimeout=2"), timeout=5)
            except subprocess.TimeoutExpired:
                return False  # connected just before the machine went down
            return done.returncode == 0 and done.stdout.strip() != before

        if not process.wait_for(rebooted, BOOT_SECONDS):
            raise HostFailed(
                f"{self.name} did not come back after a reboot\n{process.tail(self.log)}", f"see {self.log}"
            )

    def power_off(self) -> None:
        """Cuts the power: no process exits cleanly, no connection is closed, the disk stays as it is."""
        self._check_network()
        if self.on:
            network.plug(self.record.number, self.index, network.Cable(plugged=False))
        self._cgroup.kill()
        network.disconnect(self.record.number, self.index)

    def power_on(self, wait: bool = True) -> None:
        """Boots a machine that is off, and waits for SSH unless its cable is cut; does nothing if it is on."""
        self._check_network()
        off = self.folder / OFF
        process.wait_for(lambda: self.on or off.exists() or self._holder is None, 10)
        if not self.on:
            pid = self._holder
            if pid is None:
                raise HostFailed(
                    f"{self.name}: its disk is gone", f"create a new one: rigup lab up --name {self.record.name}"
                )
            network.connect(self.record.number, self.index)
            os.kill(pid, POWER_BUTTON)
            process.wait_for(lambda: self.on, 10)
        if wait and self.cable.plugged:
            self.wait_for_ssh()

    def start(self) -> None:
        """Starts a machine without waiting: a new one boots from the image, one that is off from its disk."""
        if self._holder:
            self.power_on(wait=False)
            return
        self._cgroup.kill()
        (self.folder / OFF).unlink(missing_ok=True)
        network.connect(self.record.number, self.index)
        alone = ["unshare", "--mount", "--propagation", "slave"]
        arguments = (self.record.name, str(self.index))
        process.start(self.folder, "holder", "rigup.lab.holder", *arguments, within=alone)

    def wait_for_ssh(self) -> None:
        """Waits until its SSH server answers; raises HostFailed with the console's last lines if it does not."""
        process.wait_for(lambda: self._ssh_answers() or self._holder is None, BOOT_SECONDS)
        if not self._ssh_answers():
            what = f"SSH did not answer within {BOOT_SECONDS} s" if self._holder else "it stopped before SSH answered"
            raise HostFailed(f"{self.name}: {what}\n{process.tail(self.log)}", f"see {self.log}")

    def cut(self) -> None:
        """Cuts the network cable; connections hang, as in reality."""
        self._set_cable(plugged=False)

    def heal(self) -> None:
        """Plugs the network cable in again."""
        self._set_cable(plugged=True)

    def rate(self, rate: str | None) -> None:
        """Limits the network in each direction, in tc's syntax ("8mbit"); None for no limit."""
        if rate and not RATE.match(rate):
            raise InputError(
                f"rate: {rate} is not a rate in tc's syntax", 'use a rate such as "8mbit" or "500kbit", or "off"'
            )
        self._set_cable(rate=rate)

    def fill_disk(self, leave_mib: int = 0) -> None:
        """Fills the disk except for `leave_mib` MiB; `ssh("rm /var/filler")` frees it again."""
        free = f"$(($(df --output=avail --block-size=1 / | tail -1) - {leave_mib} * 1048576))"
        fill = f"fallocate --length {free} /var/filler"
        self.ssh(f"{fill} || {fill} || {fill}", check=True)  # what else writes may take the room in between

    def _check_network(self) -> None:
        """Raises InputError if the lab's network is gone: another lab may have its number since a restart."""
        if not network.up(self.record):
            raise InputError(f"lab {self.record.name} is not running", f"rigup lab up --name {self.record.name}")

    def _set_cable(self, **changes: bool | str | None) -> None:
        self._check_network()
        cable = self.cable.model_copy(update=changes)
        network.keep_cable(self.folder, cable)
        if self.on:
            network.plug(self.record.number, self.index, cable)

    def _ssh_answers(self) -> bool:
        try:
            with socket.create_connection((self.address, self.record.ssh_port), timeout=2) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False


def dismantle(number: int, index: int) -> None:
    """Ends every process of a machine whose holder has ended, and removes its network card."""
    cgroup = Cgroup(number, index)
    cgroup.kill()
    cgroup.remove()
    network.disconnect(number, index)
