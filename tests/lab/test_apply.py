"""From nothing of rigup's to an answer in one command; then nothing more, however often it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rigup.lock import load_lock
from rigup.project.inventory import toolkit_root
from tests.lab.fleet import ANSWER, FILES, REPO, UNIT, UNIT_FILE, WEIGHTS, Fleet, Run, content_of

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "weights", "builds from source", "drift and status")]

DYNAMIC_USERS = range(61184, 65520)  # systemd's "Users, Groups, UIDs and GIDs"
RUNS = "InvocationID,ActiveEnterTimestampMonotonic,NRestarts,MainPID"


@pytest.fixture(scope="module")
def first(request: pytest.FixtureRequest) -> Run:
    """The first apply, to a machine with nothing of rigup's on it and an empty cache of builds."""
    fleet = Fleet(*request.getfixturevalue("site"))
    fleet.describe()
    fleet.forget_builds()
    fleet.host.wipe()
    return fleet.apply()


@pytest.fixture
def applied(first: Run, fleet: Fleet) -> Fleet:
    """The fleet after its first apply."""
    return fleet


def test_a_machine_becomes_a_service_that_has_answered(first: Run, applied: Fleet) -> None:
    (result,) = first.json["hosts"]
    assert (result["state"], result["errors"]) == ("changed", [])
    assert [(answer["service"], answer["text"]) for answer in result["answers"]] == [("chat", ANSWER)]
    assert applied.host.answers()
    states = applied.host.tell(f"systemctl is-active {UNIT}; systemctl is-enabled {UNIT}")
    assert states.split() == ["active", "enabled"]


def test_what_lies_on_the_host_is_whole_and_nobody_elses_to_change(applied: Fleet) -> None:
    host = applied.host
    assert host.tell("getent passwd rigup | cut -d: -f7") == "/usr/sbin/nologin"
    (build,) = host.tell("ls -A /opt/rigup/builds").split()
    owned = f"find /opt/rigup /etc/rigup {UNIT_FILE} \\( ! -user root -o ! -group root -o -perm /022 \\) ! -type l"
    assert host.tell(owned) == ""
    assert "11434" in host.tell(f"/opt/rigup/builds/{build}/bin/llama-server --version")

    (folder,) = host.tell(f"ls -d {WEIGHTS}/{REPO}/*/").split()
    assert sorted(host.tell(f"cd {folder}; ls -A").split()) == sorted([".rigup-receipt.json", *FILES])
    assert host.tell(f"find {WEIGHTS} -name '*.incoming' -o -name '*.part'") == ""


def test_the_service_runs_in_its_sandbox_as_its_own_user(applied: Fleet) -> None:
    host = applied.host
    user = int(host.tell(f"stat -c %u /proc/$(systemctl show {UNIT} -P MainPID)"))
    assert user in DYNAMIC_USERS
    assert host.tell("ss -Hltn sport = :8000 | awk '{print $4}'") == "127.0.0.1:8000"
    verdict = host.tell(f"systemd-analyze security --no-pager {UNIT} | tail -n 1")
    assert float(verdict.split(":")[1].split()[0]) <= 3.0, verdict


def test_twice_is_once(applied: Fleet) -> None:
    host = applied.host
    files, runs, lines = host.files(), host.show(RUNS), host.tell(f"journalctl -u {UNIT} -o cat | wc -l")

    as_json = applied.apply()
    in_words = applied.rigup("apply", "--yes")

    assert as_json.json["hosts"][0]["state"] == "unchanged"
    assert "no changes" in in_words.stdout.read_text()
    assert host.files() == files
    assert host.show(RUNS) == runs
    assert host.tell(f"journalctl -u {UNIT} -o cat | wc -l") == lines
    assert applied.rigup("diff", "--json").json["hosts"][0]["changes"] == []
    print(f"second apply: {as_json.json['hosts'][0]['seconds']:.1f} s on the host")


def test_status_says_what_runs(applied: Fleet) -> None:
    (row,) = applied.rigup("status", "--json").json["services"]
    assert (row["host"], row["service"], row["release"], row["unit"]) == (applied.host.name, "chat", "1", "active")
    assert (row["health"], row["drift"], row["restarts"], row["os"]) == ("answers", "none", 0, "debian-12")
    assert row["checkpoint"]["repo"] == REPO
    assert row["build"] == applied.host.tell("ls /opt/rigup/builds")


RELEASE = {UNIT_FILE, "/etc/rigup/services/chat", "/etc/rigup/services/chat/current"}


@pytest.mark.parametrize(
    ("damage", "step", "allowed"),
    [
        (f"sed -i 's/--parallel 1/--parallel 2/' {UNIT_FILE}", "release of chat", RELEASE),
        (f"systemctl disable --quiet --now {UNIT}", "release of chat", RELEASE),
        (
            "echo >> /opt/rigup/programs/ask.py",
            "rigup's programs",
            {"/opt/rigup/programs", "/opt/rigup/programs/ask.py"},
        ),
    ],
    ids=["unit", "stopped", "program"],
)
def test_what_was_changed_by_hand_is_mended_and_nothing_else(
    applied: Fleet, damage: str, step: str, allowed: set[str]
) -> None:
    host, before = applied.host, applied.host.files()
    host.tell(damage)

    shown = applied.rigup("diff", "--json", expect=1).json["hosts"][0]["changes"]
    made = applied.apply().json["hosts"][0]["changes"]

    assert [change["step"] for change in shown] == [change["step"] for change in made] == [step]
    after = host.files()
    touched = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert touched <= allowed
    assert host.answers()


def test_a_second_machine_takes_the_build_from_the_first(applied: Fleet) -> None:
    applied.describe(hosts=2)
    other = applied.hosts[1]
    other.tell("dpkg --purge cmake ninja-build")
    run = applied.apply()
    assert [host["state"] for host in run.json["hosts"]] == ["unchanged", "changed"]
    assert other.answers()
    assert not other.says("command -v cmake || command -v ninja")
    build = applied.host.tell("ls /opt/rigup/builds")
    sums = [host.tell(f"sha256sum /opt/rigup/builds/{build}/bin/*") for host in applied.hosts]
    assert sums[0] == sums[1]
    assert applied.apply("--limit", other.name).json["hosts"][0]["state"] == "unchanged"


def test_plain_pyinfra_does_the_same_from_the_root(applied: Fleet) -> None:
    host = applied.host
    for folder in ("deploy", "roles"):
        if not (applied.root / folder).exists():
            (applied.root / folder).symlink_to(toolkit_root() / folder)
    host.tell(f"sed -i 's/--parallel 1/--parallel 2/' {UNIT_FILE}")
    words = [sys.executable, "-m", "pyinfra", "inventories/rehearsal.py", "deploy/site.py", "-y"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(applied.cache)}
    done = subprocess.run(words, cwd=applied.root, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.answers()
    assert applied.rigup("diff", "--json").json["hosts"][0]["changes"] == []


def test_weights_are_sent_to_a_host_that_reaches_no_hub(applied: Fleet) -> None:
    (checkpoint,) = load_lock(applied.root / "rigup.lock").checkpoints
    house = applied.root / "house/weights" / REPO / checkpoint.revision
    house.mkdir(parents=True)
    for name in FILES:
        (house / name).write_bytes(content_of(name))
    with (applied.root / "group_data/boxes.py").open("a") as settings:
        settings.write('wheelhouse = "house"\n')
    applied.host.tell(f"rm -rf {WEIGHTS}/{REPO}")
    asked = len(applied.hub.log())
    applied.apply()
    assert len(applied.hub.log()) == asked
    assert applied.host.answers()
    assert applied.apply().json["hosts"][0]["state"] == "unchanged"

    (house / FILES[1]).write_bytes(b"?" + content_of(FILES[1])[1:])
    applied.host.tell(f"rm -rf {WEIGHTS}/{REPO}")
    applied.apply()
    assert {entry["path"].rpartition("/")[2] for entry in applied.hub.log()[asked:]} >= {FILES[1]}
    assert applied.host.tell(f"sha256sum {WEIGHTS}/{REPO}/*/{FILES[1]}").split()[0] == checkpoint.files[1].sha256
