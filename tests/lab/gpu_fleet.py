"""A fleet on machines with simulated GPUs, and what a person does to its driver by hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from rigup.lab.packages.nvidia_repository import settings
from tests.lab.fleet import Fleet, Run, wait_for
from tests.lab.fleet_fixtures import made_site

RIG = "4x RTX 3090"
OLD, NEW, OTHER_BRANCH = "580.95.05", "580.178.04", "590.48.01"
TOO_OLD = "570.133.20"
TOOLKIT = {"cuda-cudart-13-0": "13.0.96", "cuda-toolkit-13-0": "13.0.2", "libcublas-13-0": "13.1.0.3"}
PACKAGES = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'"


def steps(run: Run, role: str = "driver") -> list[str]:
    """The changes of one role that a run reports for its host."""
    return [change["step"] for change in run.json["hosts"][0]["changes"] if change["role"] == role]


def error(run: Run) -> dict[str, str]:
    """The one error of a run."""
    (found,) = run.json["hosts"][0]["errors"]
    return dict(found)


class GpuFleet(Fleet):
    """A fleet whose lock pins a driver of the lab's repository."""

    def __init__(self, lab: Lab, hub: StandInHub, root: Path, cache: Path) -> None:
        super().__init__(lab, hub, root, cache)
        self.repository = settings(lab.record.suite)
        self.fingerprint = self.repository["nvidia_key_fingerprint"]
        self.address = f"{self.repository['nvidia_repository']}/debian12/x86_64/"
        self.base_lock = (root / "rigup.lock").read_text().partition("\n[driver]")[0]

    def describe_gpus(
        self, version: str | None, rig: dict[str, Any] | None = None, toolkit: str = "13.0.2", **data: Any
    ) -> None:
        """Writes a fleet whose lock has this driver, or none; `rig` is added to the GPUs, `data` to group_data."""
        self.describe(gpus=[0])
        said = {
            "rig": {"gpus": RIG, **(rig or {})},
            "services": {"chat": {"model": "SmolLM2-135M-Instruct", "context": 8192, "gpus": [0]}},
            "hub": self.hub.url,
            "builder": self.host.name,
            **self.repository,
            **data,
        }
        (self.root / "group_data/boxes.py").write_text("".join(f"{key} = {value!r}\n" for key, value in said.items()))
        pins = {**TOOLKIT, "cuda-toolkit-13-0": toolkit}
        packages = "".join(f'{name} = "{pinned}"\n' for name, pinned in pins.items())
        branch = version and version.partition(".")[0]
        driver = f'[driver]\nversion = "{version}"\nbranch = "{branch}"\n' if version else ""
        (self.root / "rigup.lock").write_text(
            f'{self.base_lock}\n{driver}[cuda_toolkit]\nversion = "{toolkit}"\n[cuda_toolkit.packages]\n{packages}'
        )

    def loaded(self) -> str:
        """The version that the kernel runs."""
        return self.host.tell("sed -n 's/.* \\([0-9][0-9.]*\\)  Release.*/\\1/p' /proc/driver/nvidia/version")

    def installed(self) -> dict[str, str]:
        """The versions of the driver's packages, by name."""
        lines = [line.split() for line in self.host.tell(PACKAGES).splitlines()]
        return {
            name: version.removesuffix("-1")
            for name, version, state in lines
            if version.startswith(("570.", "580.", "590.")) and state == "installed"
        }

    @contextmanager
    def apts_lock_held(self) -> Iterator[None]:
        """Within it, a process on the host holds the lock that apt takes first, as another apt would."""
        lock = "f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
        program = f"import fcntl, time; {lock}; time.sleep(600)"
        self.host.tell(f'systemd-run --quiet --collect --unit=holds-apt python3 -c "{program}"')
        try:
            wait_for(lambda: self.host.says("lslocks | grep -q lock-frontend"), "the lock")
            yield
        finally:
            self.host.tell("systemctl stop holds-apt")

    def upgrade_by_hand(self, version: str) -> None:
        """What somebody does who knows how to get around pins: each package at a version, in words."""
        words = " ".join(f"{name}={version}-1" for name in self.installed())
        options = "--allow-downgrades --allow-change-held-packages"
        self.host.tell(f"DEBIAN_FRONTEND=noninteractive apt-get install -q -y {options} {words}")

    def boots(self) -> str:
        """Which boot this is."""
        return self.host.machine.boot_id()

    def limits(self) -> set[str]:
        """The GPUs' power limits as nvidia-smi prints them."""
        query = "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits"
        return set(self.host.tell(query).splitlines())

    def weights(self) -> str:
        """Every file of the weights, with inode and time."""
        return self.host.tell("find /var/lib/rigup/weights -type f -printf '%p %i %T@\\n' | sort")


@contextmanager
def made_gpu_fleet(tmp_path_factory: pytest.TempPathFactory, name: str, **options: Any) -> Iterator[GpuFleet]:
    """One machine with four cards and no driver, and a lock that pins the older driver; gone after it.

    name: of the lab, made one of this process's own. options: as `Lab.up` takes them.
    """
    with made_site(tmp_path_factory.mktemp("site"), f"{name}{os.getpid()}", rig=RIG, **options) as site:
        fleet = GpuFleet(*site)
        fleet.describe_gpus(OLD)
        try:
            yield fleet
        finally:
            fleet.end_runs()
