"""Whose builds run on a host: its own, or those that its builder compiled in a run of this machine's; nobody else's."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.operations.builds.controller import own_os
from rigup.operations.builds.records import keep_archive
from rigup.project.build_settings import read_builders
from rigup.project.inventory import load_project
from tests.lab.fleet import Fleet, Host

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "builds from source", "rollback", "drift and status")]

BUILDS = "/opt/rigup/builds"
RAN = "/var/tmp/ran"
PLANTED = f'#!/bin/sh\nid -u >> {RAN}\necho version: 11434\n[ "$1" = --version ] || exec sleep infinity\n'


@pytest.fixture
def pair(fleet: Fleet) -> Iterator[Fleet]:
    """Two machines with nothing of rigup's, and no build anywhere."""
    fleet.forget_builds()
    for host in fleet.hosts:
        host.wipe()
        host.tell(f"rm -f {RAN}")
    yield fleet
    for host in fleet.hosts:
        host.tell(f"rm -f {RAN}")
        host.wipe()
    fleet.forget_builds()


def build_of(fleet: Fleet, host: Host) -> str:
    """The name of the build that an apply would put onto a host."""
    found = fleet.rigup("diff", "--json", "--limit", host.name, expect=1).json["hosts"][0]["changes"]
    (step,) = (change["step"] for change in found if change["step"].startswith("build "))
    return str(step).split()[1].rstrip(",")


def plant(host: Host, build: str) -> None:
    """What somebody who is root there leaves for the next run to find, as if a job had ended just before."""
    result = f"{BUILDS}/.result-{build}"
    manifest = json.dumps({"name": build, "built_by": host.name, "build": {}})
    host.tell(f"mkdir -p {result}/bin; cat > {result}/bin/llama-server << 'END'\n{PLANTED}END")
    host.tell(f"chmod 755 {result}/bin/llama-server; echo '{manifest}' > {result}/manifest.json")


@pytest.mark.parametrize("named", [False, True], ids=["no builder", "the hostile host is the builder"])
def test_what_root_plants_on_one_host_neither_comes_to_another_nor_runs_there(pair: Fleet, named: bool) -> None:
    hostile, honest = pair.hosts
    pair.describe(hosts=2, start_timeout=5, builder=hostile.name if named else None)
    build = build_of(pair, hostile)
    plant(hostile, build)
    pair.apply("--limit", hostile.name, expect=1)
    assert PLANTED.strip() == hostile.tell(f"cat {BUILDS}/{build}/bin/llama-server")
    assert pair.recorded_builds() == []

    (result,) = pair.apply("--limit", honest.name).json["hosts"]
    assert (result["state"], result["errors"]) == ("changed", [])
    assert honest.answers()
    assert not honest.says(f"test -e {RAN}")
    sums = [host.tell(f"sha256sum < {BUILDS}/{build}/bin/llama-server") for host in pair.hosts]
    assert sums[0] != sums[1]
    assert json.loads(honest.tell(f"cat {BUILDS}/{build}/manifest.json"))["built_by"] == honest.name


def test_both_at_once_the_other_waits_for_its_builder_and_takes_its_build(pair: Fleet) -> None:
    other, builder = pair.hosts
    pair.describe(hosts=2, builder=builder.name)
    builder.hold_build()
    run = pair.start("apply", "--yes", "--json")
    run.wait_to_say(f"waiting for {builder.name}, which is building llama.cpp-b11434-")
    builder.release_build()
    assert run.wait() == 0, run.text
    assert all(host.answers() for host in pair.hosts)
    (build,) = other.tell(f"ls -A {BUILDS}").split()
    assert json.loads(other.tell(f"cat {BUILDS}/{build}/manifest.json"))["built_by"] == builder.name
    sums = [host.tell(f"cd {BUILDS}/{build}; sha256sum bin/* manifest.json") for host in pair.hosts]
    assert sums[0] == sums[1]
    assert other.tell(f"find {BUILDS} ! -user root -o ! -type l -perm /022") == ""


def test_of_two_builders_the_first_that_is_free_compiles_for_both(pair: Fleet) -> None:
    pair.describe(hosts=2, builder=[host.name for host in pair.hosts])
    for host in pair.hosts:
        host.hold_build()
    run = pair.start("apply", "--yes", "--json")
    run.wait_to_say(", which is building llama.cpp-b11434-")
    for host in pair.hosts:
        host.release_build()
    assert run.wait() == 0, run.text
    assert all(host.answers() for host in pair.hosts)
    makers = {json.loads(host.tell(f"cat {BUILDS}/*/manifest.json"))["built_by"] for host in pair.hosts}
    assert len(makers) == 1 and makers <= {host.name for host in pair.hosts}
    assert [found["drift"] for found in pair.rigup("diff", "--json").json["hosts"]] == [[], []]


def test_without_a_builder_each_host_compiles(pair: Fleet) -> None:
    pair.describe(hosts=2, builder=None)
    pair.apply()
    for host in pair.hosts:
        assert json.loads(host.tell(f"cat {BUILDS}/*/manifest.json"))["built_by"] == host.name
    assert pair.recorded_builds() == []


@pytest.mark.skipif(own_os() != "debian-12", reason="the machines of the lab run debian-12")
def test_the_controlling_machine_compiles_for_machines_like_it(pair: Fleet) -> None:
    pair.describe(builder="controller")
    pair.apply()
    assert pair.host.answers()
    assert json.loads(pair.host.tell(f"cat {BUILDS}/*/manifest.json"))["built_by"] == "controller"
    assert pair.apply().json["hosts"][0]["state"] == "unchanged"
    assert pair.rigup("diff", "--json").json["hosts"][0]["drift"] == []
    (release,) = pair.rigup("releases", "--json").json["hosts"][pair.host.name]["chat"]
    assert release["built_by"] == "controller"

    pair.describe(builder=None)
    (found,) = pair.rigup("diff", "--json", expect=1).json["hosts"][0]["drift"]
    assert found["what"] == "build" and " controller" in found["message"]


def test_a_recorded_build_is_tried_by_the_worker_in_a_sandbox_before_it_is_used(pair: Fleet, tmp_path: Path) -> None:
    other, builder = pair.hosts
    pair.describe(hosts=2, builder=builder.name)
    build = build_of(pair, other)
    script = "#!/bin/sh\nid -un; touch /opt/rigup/touched /etc/touched /var/tmp/ran 2>&1; exit 1\n"
    record(pair, builder, build, script, tmp_path)

    run = pair.apply("--limit", other.name)
    assert re.search(rf"\b{builder.name} .*llama-server --version: .*: rigup\b", run.text)
    assert run.text.count("Read-only file system") >= 2
    assert not other.says(f"test -e /opt/rigup/touched || test -e /etc/touched || test -e {RAN}")
    assert other.answers()
    assert json.loads(other.tell(f"cat {BUILDS}/{build}/manifest.json"))["built_by"] == other.name


def record(fleet: Fleet, builder: Host, build: str, server: str, folder: Path) -> None:
    """Records a build whose server is this script, as if the builder had made it."""
    (folder / build / "bin").mkdir(parents=True)
    (folder / build / "bin/llama-server").write_text(server)
    (folder / build / "bin/llama-server").chmod(0o755)
    (folder / build / "manifest.json").write_text(json.dumps({"name": build, "built_by": builder.name}))
    with tarfile.open(folder / "packed", "w:gz") as packed:
        packed.add(folder / build, build)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(fleet.cache))
        project = load_project(str(fleet.root / "inventories/rehearsal.py"))
        data = {host.name: host.data for host in project.everyone}
        (found,) = read_builders(builder.name, fleet.root, data)
    found.folder.mkdir(parents=True)
    keep_archive(found, build, folder / "packed")


def test_a_file_system_that_runs_nothing_is_named_before_anything_is_built(pair: Fleet) -> None:
    pair.describe()
    pair.host.tell("mount -t tmpfs -o noexec,mode=755 rigup-test /opt")
    try:
        (error,) = pair.apply(expect=1).json["hosts"][0]["errors"]
    finally:
        pair.host.tell("umount /opt")
    name = pair.host.name
    assert error["message"].startswith(f"{name}: /opt ")
    assert " noexec" in error["message"] and BUILDS in error["message"]
    assert error["hint"].startswith("on the host: mount -o remount,exec /opt;")
