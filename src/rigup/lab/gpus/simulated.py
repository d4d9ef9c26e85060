"""The simulated GPUs of a lab machine, driven through files on the machine.

The description of the GPUs is in /etc/lab-gpus/rig; changes since the boot are in /run/lab-gpus/.
nvml/libnvidia_ml.c documents both.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigup.errors import HostFailed, InputError
from rigup.lab.folder import write
from rigup.lab.gpus.description import FILE, LOAD_UNIT, RIG, describe
from rigup.lab.machine import Machine

STATE = "/run/lab-gpus"
USER = "lab-uses-a-gpu.service"
THERMAL_SLOWDOWN = 0x48
"""nvmlClocksEventReasonHwSlowdown and HwThermalSlowdown."""


@dataclass(frozen=True)
class SimulatedGpus:
    """The GPUs of one machine and their faults, which the next boot clears."""

    machine: Machine

    def description(self) -> dict[str, str]:
        """The description of the machine's GPUs by key; raises InputError if it has none."""
        kept = self.machine.folder / FILE
        if not kept.exists():
            raise InputError(
                f"{self.machine.name} has no simulated GPUs", 'rigup lab up --name NAME --rig "4x RTX 3090"'
            )
        lines = [line for line in kept.read_text().splitlines() if not line.startswith("#")]
        return dict(line.partition(" ")[::2] for line in lines)

    def set(self, index: int, **values: object) -> None:
        """Overrides values of the description of GPU `index`."""
        words = (f"echo {shlex.quote(str(value))} >{STATE}/gpu{index}.{key}" for key, value in values.items())
        self._write(index, " && ".join(words))

    def unset(self, index: int, *keys: str) -> None:
        """Removes the overrides."""
        self._write(index, "rm -f " + " ".join(f"{STATE}/gpu{index}.{key}" for key in keys))

    def exchange(self, rig: str | Mapping[str, Any]) -> None:
        """Replaces the GPUs of the machine from the next boot on."""
        wanted = describe(rig, self.machine.name)
        self.machine.ssh(f"cat >/{RIG}", input=wanted, check=True)
        write(self.machine.folder / FILE, wanted)

    def lose(self, index: int) -> None:
        """Drops the GPU off the bus: every NVML call returns NVML_ERROR_GPU_IS_LOST."""
        self.set(index, lost=1)

    def hang(self, index: int) -> None:
        """Hangs the GPU's driver: NVML calls block until the GPU is restored."""
        self.set(index, hang=1)

    def restore(self, index: int) -> None:
        """Restores the GPU from any fault."""
        self.unset(index, "lost", "hang", "temperature", "clocks_event_reasons")

    def throttle(self, index: int, celsius: int = 92) -> None:
        """Makes the GPU hot and throttled."""
        self.set(index, temperature=celsius, clocks_event_reasons=THERMAL_SLOWDOWN)

    def secure_boot(self, on: bool) -> None:
        """Switches Secure Boot in the firmware, from the next boot on: it rejects modules that DKMS built."""
        self._run("touch /etc/lab-gpus/secure_boot" if on else "rm -f /etc/lab-gpus/secure_boot")

    def use(self, index: int) -> None:
        """Opens the GPU in a process until `free`, so that no module can be unloaded."""
        device = f"/dev/nvidia{index}"
        program = f"import os, time; os.open('{device}', os.O_PATH); time.sleep(86400)"
        seen = f"ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q ' {device}$'"
        start = f'systemd-run --quiet --collect --unit={USER} python3 -c "{program}"'
        self._write(index, f"{start} && for _ in $(seq 50); do {seen} && exit 0; sleep 0.1; done; exit 1")

    def free(self) -> None:
        """Ends the process of `use`."""
        self._run(f"systemctl stop {USER}")

    def fabric(self, seconds: int = 0, error: int = 0) -> None:
        """Sets the fabric's result from the fabric manager's next start on: delay until ready, or an NVML error."""
        folder = Path(f"/{RIG}").parent
        self._run(f"echo {seconds} >{folder}/fabric_seconds; echo {error} >{folder}/fabric_error")

    def reload_module(self) -> None:
        """Unloads the kernel module and loads the installed one, like `modprobe -r` and `modprobe`."""
        self._run(f"systemctl restart {LOAD_UNIT}")

    def _write(self, index: int, command: str) -> None:
        count = int(self.description()["gpus"])
        if not 0 <= index < count:
            raise InputError(
                f"{index}: {self.machine.name} has GPUs 0 to {count - 1}", f"use an index from 0 to {count - 1}"
            )
        self._run(command)

    def _run(self, command: str) -> None:
        done = self.machine.ssh(command)
        if done.returncode:
            raise HostFailed(f"{self.machine.name}: {command}: exited with {done.returncode}\n{done.stderr}".rstrip())
