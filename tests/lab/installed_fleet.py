"""A fleet that serves with an installed engine: its wheels are made on the spot, in a wheelhouse beside the fleet."""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path
from typing import Any

from rigup.cache import cache_folder
from rigup.lab.hub.content import commit_id
from rigup.operations.builds.wheels import fetch_wheel
from tests import tiny_minimax_m2 as tiny
from tests.lab.fleet import ANSWER, Fleet, wait_for
from tests.lab.wheels import sha256, stand_in_vllm

UV_VERSION = "0.13.9"
UV = f"uv-{UV_VERSION}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
UV_SHA256 = "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19"
BUILDS = "/opt/rigup/builds"
INDEX = "http://127.0.0.1:8100"
# a lab's machines see the memory of this one
MEMORY_GIB = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def provide(root: Path, cache: Path, served: Path) -> None:
    """What such a fleet rests on: the tiny checkpoint, described in `root` and served, and uv in a wheelhouse."""
    tiny.describe(root)
    tiny.write(served / tiny.REPO)
    uv = fetch_wheel(UV, UV_SHA256, cache_folder() / "sources")
    for path in (root / "house/wheels" / UV, cache / "rigup/sources" / UV_SHA256):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(uv, path)


class Installed(Fleet):
    """A fleet whose host serves the tiny model with vLLM on its CPU, the wheels from a wheelhouse."""

    @property
    def served(self) -> Path:
        """What its hub serves."""
        return self.root / "served"

    @property
    def house(self) -> Path:
        """Where the wheels are."""
        return self.root / "house" / "wheels"

    def lock(self, behaviour: str = "answer", **changes: str) -> None:
        """Pins an engine that behaves like that. changes: sha256 by wheel name, as another lock has them."""
        files = {**stand_in_vllm(self.house, behaviour).files, **changes}
        served = self.served / tiny.REPO
        weights = {path.name: path for path in sorted(served.iterdir())}
        revision = commit_id({name: sha256(path) for name, path in weights.items()})
        listed = "".join(
            f'[[checkpoints.files]]\npath = "{name}"\nsize = {path.stat().st_size}\nsha256 = "{sha256(path)}"\n'
            for name, path in weights.items()
        )
        (self.root / "rigup.lock").write_text(
            f'schema = 1\n[uv]\nversion = "{UV_VERSION}"\n[uv.files]\n"{UV}" = "{UV_SHA256}"\n'
            f'[[checkpoints]]\nrepo = "{tiny.REPO}"\nquant = "BF16"\nrevision = "{revision}"\n{listed}'
            '[[environments]]\nengine = "vllm"\nversion = "0.32.0"\nvariant = "cpu"\narchitecture = "x86_64"\n'
            'python = "3.11"\npython_from = "os"\n[environments.files]\n'
            + "".join(f'"{name}" = "{digest}"\n' for name, digest in files.items())
        )

    def describe(self, hosts: int = 1, *, packages: str = 'wheelhouse = "house"', **service: Any) -> None:
        """The host serves the tiny model by vLLM."""
        settings = {"model": tiny.MODEL, "engine": "vllm", "version": "0.32.0", "context": 2048, **service}
        super().describe(hosts, rig={"host_memory_gib": MEMORY_GIB}, **settings)
        with (self.root / "group_data/boxes.py").open("a") as file:
            file.write(f"{packages}\n")

    def builds(self) -> list[str]:
        """What lies under the builds root, unfinished things too."""
        return self.host.tell(f"ls -A {BUILDS} 2>/dev/null").split()

    def running(self) -> int:
        """The number of the current release."""
        return int(self.host.tell("basename $(readlink /etc/rigup/services/chat/current)"))

    def serve_index(self) -> None:
        """Has the host itself serve the wheels as a package index."""
        for wheel in self.house.glob("*.whl"):
            project = wheel.name.split("-")[0].replace("_", "-")
            text = base64.b64encode(wheel.read_bytes()).decode() if project != "uv" else ""
            put = f"mkdir -p /srv/simple/{project}; base64 -d > '/srv/simple/{project}/{wheel.name}'"
            assert self.host.machine.ssh(put, input=text).returncode == 0
        serve = "python3 -m http.server --bind 127.0.0.1 --directory /srv/simple 8100"
        self.host.machine.ssh(f"systemd-run --quiet --unit=index {serve}")
        wait_for(lambda: self.host.says(f"curl -sf {INDEX} >/dev/null"), "the index")

    def answers(self) -> bool:
        """Whether the service gives the stand-in's answer, asked without rigup."""
        ask = "curl -s -X POST -d '{}' http://127.0.0.1:8000/v1/chat/completions"
        return ANSWER in self.host.machine.ssh(ask).stdout
