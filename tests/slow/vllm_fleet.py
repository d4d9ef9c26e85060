"""A fleet that serves a tiny MiniMax M2 with the real vLLM on CPUs.

The packages come from the index that pip is set up for here, and go to the machines from a wheelhouse, which is kept
in the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rigup.cache import cache_folder
from rigup.lab.hub.server_process import StandInHub
from rigup.lock import load_lock
from tests import tiny_minimax_m2 as tiny
from tests.lab.fleet import Fleet
from tests.lab.fleet_fixtures import made_fleet

# wheels of 0.9 GB and an environment of 3.4 GB; both take memory of this machine
DISK = "6g"
DOWNLOAD_SECONDS = 900
WHEELHOUSE = cache_folder() / "tests" / "wheelhouse"


class VllmFleet(Fleet):
    """A fleet without GPUs whose folder says what vLLM is to serve."""

    def describe(self, hosts: int = 1, *, rig: dict[str, Any] | None = None, **service: Any) -> None:
        """Writes the fleet; the machines of the lab have the memory of this one."""
        memory = int(self.host.tell("sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo")) / 2**20
        settings = {"model": tiny.MODEL, "engine": "vllm", "version": "0.32.0", "context": 2048, "reasoning": True}
        settings["expected_answer"] = None  # its weights are random
        (WHEELHOUSE / "wheels").mkdir(parents=True, exist_ok=True)
        super().describe(hosts, rig={"host_memory_gib": round(memory, 1), **(rig or {})}, **{**settings, **service})
        with (self.root / "group_data/boxes.py").open("a") as file:
            file.write(f'wheelhouse = "{WHEELHOUSE}"\n')

    def lock(self) -> None:
        """`rigup lock`; then the wheelhouse has what it pins."""
        self.pin()
        fill_wheelhouse(self.root / "rigup.lock")

    def pin(self) -> None:
        """`rigup lock`, which asks the same hub where this machine reaches it."""
        described = self.root / "group_data/boxes.py"
        text = described.read_text()
        here = StandInHub.start(self.root / "served", self.root / "hub")
        try:
            described.write_text(text.replace(self.hub.url, here.url))
            self.rigup("lock")
        finally:
            here.stop()
            described.write_text(text)


@contextmanager
def made_vllm_fleet(name: str, root: Path, hosts: int) -> Iterator[VllmFleet]:
    """The fleet on bare machines, with the checkpoint in its hub; gone after it. name: of the lab."""
    tiny.describe(root)
    tiny.write(root / "served" / tiny.REPO)
    with made_fleet(VllmFleet, name, root, root / "served", hosts=hosts, disk=DISK) as fleet:
        yield fleet


def fill_wheelhouse(lock: Path) -> None:
    """Downloads what the lock names and the wheelhouse lacks; pip checks the hashes."""
    locked = load_lock(lock)
    (environment,) = locked.environments
    assert locked.uv is not None
    wheels = WHEELHOUSE / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    files = {**environment.files, **{name: sha for name, sha in locked.uv.files.items() if "x86_64" in name}}
    lines = [
        f"{name.split('-')[0]}=={name.split('-')[1]} --hash=sha256:{sha256}\n"
        for name, sha256 in files.items()
        if not (wheels / name).exists()
    ]
    if lines:
        listed = lock.with_name("requirements.txt")
        listed.write_text("".join(lines))
        words = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", str(wheels)]
        pip = [sys.executable, "-m", "pip", "download", *words, "-r", str(listed)]
        # the lock pins them already; constraints of this machine's own may exclude what it pins
        subprocess.run(pip, check=True, timeout=DOWNLOAD_SECONDS, env={**os.environ, "PIP_CONSTRAINT": os.devnull})
