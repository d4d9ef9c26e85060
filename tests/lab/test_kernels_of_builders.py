"""GPU kernels that are compiled once for a fleet: by its builder, with an environment that each host installs itself.

vLLM, FlashInfer and NVIDIA's compiler are stand-ins of small wheels. No plan for machines without GPUs has a compiler:
each run of rigup gives it to every environment here.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from rigup.operations.builds.records import keep_archive
from rigup.project.build_settings import read_builders
from rigup.project.inventory import load_project
from tests.lab.fleet import REHEARSAL, Host, Run, wait_for
from tests.lab.fleet_fixtures import made_lab
from tests.lab.installed_fleet import BUILDS, Installed, provide
from tests.lab.wheels import kernel_wheels

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rests_on("the run", "environments", "builds from source", "rollback", "drift and status"),
]

WITH_COMPILER = """
from rigup.artifacts import CudaCompiler
from rigup.plan import Build
compiler = CudaCompiler(
    package="nvidia-cuda-nvcc",
    series="13.0",
    folder="nvidia/cu13",
    kernels=("flashinfer.jit.sampling:gen_sampling_module",),
    source="a test",
)
Build.own_compiler = property(lambda build: compiler if build.environment else None)
"""
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
HOLD = f"{REHEARSAL}/hold-kernels"
# What root on a builder may have its kernels do where they are loaded.
HOSTILE = """
import getpass, pathlib
for folder in ("/opt/rigup", "/opt/rigup/builds", "/etc", "/var/cache/rigup/.packages/uv", str(package), "/var/tmp"):
    try:
        pathlib.Path(folder, "touched").touch()
    except OSError as error:
        print(error)
raise OSError(f"sampling.so: {getpass.getuser()} cannot load it")
"""
KEPT, PLACE = "kernels/sampling.so", "lib/python3.11/site-packages/flashinfer/data/aot/sampling/sampling.so"


class KernelFleet(Installed):
    """Two hosts that serve with environments whose kernels are compiled."""

    def start(self, *words: str, before: str = "", terminal: int | None = None) -> Run:
        """Starts `rigup words`, to which every environment has a compiler."""
        return super().start(*words, before=WITH_COMPILER + before, terminal=terminal)

    def lock(self, behaviour: str = "answer", **changes: str) -> None:
        """Pins what the kernels are compiled with, too."""
        super().lock(behaviour, **kernel_wheels(self.house), **changes)

    def build(self, host: Host) -> str:
        """The folder of the one build of a host."""
        (name,) = host.tell(f"ls -A {BUILDS}").split()
        return f"{BUILDS}/{name}"

    def maker(self, host: Host) -> tuple[Any, Any]:
        """Who made the build that a host runs, by its manifest and by `rigup releases`."""
        manifest = json.loads(host.tell(f"cat {self.build(host)}/manifest.json"))
        (release,) = self.rigup("releases", "--json").json["hosts"][host.name]["chat"]
        return manifest["built_by"], release["built_by"]


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, StandInHub, Path, Path]]:
    """Two booted machines with a driver's library, a hub with the tiny checkpoint, a wheelhouse with uv."""
    root, cache = tmp_path_factory.mktemp("fleet"), tmp_path_factory.mktemp("cache")
    provide(root, cache, root / "served")
    with made_lab(f"kernels{os.getpid()}", hosts=2, packages=("gcc", "libc6-dev", "libnuma1")) as lab:
        for machine in lab.machines:
            make = f"echo | gcc -shared -Wl,-soname,libcuda.so.1 -o {DRIVER} -x c - && ldconfig"
            Host(machine).tell(make)
        yield lab, StandInHub.start(root / "served", lab=lab.record.name), root, cache


@pytest.fixture
def fleet(site: tuple[Lab, StandInHub, Path, Path]) -> Iterator[KernelFleet]:
    """The fleet, whose first host is the builder; nothing is on the hosts or recorded, and the journals are empty."""
    fleet = KernelFleet(*site)
    fleet.lock()
    fleet.describe(2)
    fleet.forget_builds()
    for host in fleet.hosts:
        host.wipe()
        host.tell("journalctl -q --rotate --vacuum-time=1s; true")
    yield fleet
    fleet.end_runs()


def did(host: Host) -> list[str]:
    """What the jobs of builds did on a host about packages and kernels, in order."""
    lines = host.tell("journalctl -q -o cat -u 'rigup-build-*'").splitlines()
    begins = ("installing ", "compiling kernels ", "taking kernels ", "loading kernels ")
    found = (" ".join(line.split()[:2]) for line in lines if line.startswith(begins))
    return [step for step, _ in groupby(found)]  # what a program of the job says is there once more, as the status


def sums(fleet: KernelFleet, host: Host) -> set[str]:
    """The sha256 of a host's kernels, where FlashInfer looks and where they are kept."""
    lines = host.tell(f"cd {fleet.build(host)}; sha256sum {KEPT} {PLACE}").splitlines()
    return {line.split()[0] for line in lines}


def test_the_builder_compiles_and_the_other_installs_meanwhile_and_takes_its_kernels(fleet: KernelFleet) -> None:
    builder, other = fleet.hosts
    builder.tell(f"mkdir -p {REHEARSAL}; touch {HOLD}")
    run = fleet.start("apply", "--yes", "--json")
    run.wait_to_say(f"waiting for {builder.name}, which is building the kernels of vllm-0.32.0-")
    assert did(other) == ["installing 4"], "packages first"
    builder.tell(f"rm {HOLD}")
    assert run.wait() == 0, run.text
    assert all(host.answers() for host in fleet.hosts)
    assert did(builder) == ["installing 4", "compiling kernels"]
    assert did(other) == ["installing 4", "loading kernels", "taking kernels"]
    assert len(sums(fleet, builder) | sums(fleet, other)) == 1
    assert [fleet.maker(host) for host in fleet.hosts] == [(builder.name, builder.name)] * 2
    assert other.tell(f"find {BUILDS} ! -user root -o ! -type l -perm /022") == ""
    assert other.tell(f"ls -A {fleet.build(other)}").split() == builder.tell(f"ls -A {fleet.build(builder)}").split()
    (archive,) = fleet.recorded_builds()
    with tarfile.open(archive) as packed:
        paths = {member.name.partition("/")[2] for member in packed if member.isfile()}
    assert paths == {KEPT, "manifest.json"}

    files = [host.files() for host in fleet.hosts]
    assert [row["state"] for row in fleet.apply().json["hosts"]] == ["unchanged"] * 2
    assert [host.files() for host in fleet.hosts] == files
    assert [found["drift"] for found in fleet.rigup("diff", "--json").json["hosts"]] == [[], []]

    fleet.describe(2, builder=None)
    mine, drifted = fleet.rigup("diff", "--json", expect=1).json["hosts"]
    assert mine["drift"] == []
    assert [found["what"] for found in drifted["drift"]] == ["build"]
    assert builder.name in drifted["drift"][0]["message"]


def test_kernels_of_an_earlier_run_are_taken_and_those_that_do_not_load_change_nothing(
    fleet: KernelFleet, tmp_path: Path
) -> None:
    builder, other = fleet.hosts
    fleet.apply("--limit", builder.name)
    fleet.apply("--limit", other.name)
    assert did(other) == ["installing 4", "loading kernels", "taking kernels"]
    assert sums(fleet, other) == sums(fleet, builder)

    name = Path(fleet.build(other)).name
    fleet.forget_builds()
    record(fleet, builder, name, tmp_path)
    other.wipe()
    run = fleet.apply("--limit", other.name)
    assert f"the kernels of {builder.name} do not work here; compiling them: " in run.text
    assert "OSError: sampling.so: rigup cannot load it" in run.text
    assert other.tell("find /opt/rigup /etc /var/cache/rigup /var/tmp -name touched") == ""
    tried = other.tell("journalctl -q -o cat -u 'rigup-build-check-*'")
    assert tried.count("Read-only file system") + tried.count("Permission denied") == 5, tried
    assert did(other)[3:] == ["installing 4", "loading kernels", "compiling kernels"]
    assert other.answers() and fleet.maker(other) == (other.name, other.name)
    assert not other.says(f"ls -d {BUILDS}/.*-{name}*")


def record(fleet: KernelFleet, builder: Host, name: str, folder: Path) -> None:
    """Records kernels that do harm, and files that nobody asked for, as if the builder had made them."""
    (folder / name / "kernels").mkdir(parents=True)
    for path, text in {KEPT: HOSTILE, "kernels/other.so": "", "bin/python": "#!/bin/sh\n"}.items():
        (folder / name / path).parent.mkdir(exist_ok=True)
        (folder / name / path).write_text(text)
    (folder / name / "manifest.json").write_text(json.dumps({"name": name, "built_by": builder.name}))
    with tarfile.open(folder / "packed", "w:gz") as packed:
        packed.add(folder / name, name)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(fleet.cache))
        project = load_project(str(fleet.root / "inventories/rehearsal.py"))
        (found,) = read_builders(builder.name, fleet.root, {host.name: host.data for host in project.everyone})
    found.folder.mkdir(parents=True)
    keep_archive(found, name, folder / "packed")


def test_after_kill_9_hosts_go_on_where_they_were_and_what_was_begun_before_is_not_recorded(fleet: KernelFleet) -> None:
    builder = fleet.host
    builder.tell(f"mkdir -p {REHEARSAL}; touch {HOLD}")
    run = fleet.start("apply", "--yes")
    run.wait_to_say(f"waiting for {builder.name}, which is building the kernels of vllm-0.32.0-")
    wait_for(lambda: "compiling kernels" in did(builder), "the compilation")
    run.kill()
    builder.tell(f"rm {HOLD}")
    fleet.apply()
    assert [did(host) for host in fleet.hosts] == [["installing 4", "compiling kernels"]] * 2
    assert fleet.recorded_builds() == []
    assert [fleet.maker(host) for host in fleet.hosts] == [(host.name, host.name) for host in fleet.hosts]
    assert [found["drift"] for found in fleet.rigup("diff", "--json").json["hosts"]] == [[], []]
