"""Eight machines: some in trouble while the others end right, changes that roll from one to the next, and stops."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.fleet import REHEARSAL, UNIT, UNIT_FILE, WEIGHTS, Fleet, Host, Run, wait_for
from tests.lab.fleet_fixtures import made_site

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("the run", "rollouts", "rollback")]

MACHINES = 8
# bytes a second of each transfer: the first of eight hosts must still download when the last one begins
SLOW = 150_000
IMPATIENT = "import rigup.operations.primitives.jobs as jobs\njobs.RECONNECT_SECONDS = 5"
AHEAD = "import time\nnow = time.time\ntime.time = lambda: now() + {seconds}"


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The machines, with a build of the engine in the controlling machine's cache."""
    with (
        pytest.MonkeyPatch.context() as patch,
        made_site(tmp_path_factory.mktemp("site"), f"roll{os.getpid()}", hosts=MACHINES) as made,
    ):
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        fleet = Fleet(*made)
        fleet.describe()
        fleet.apply()
        yield made


@pytest.fixture
def fleet(site: Any) -> Iterator[Fleet]:
    """The fleet; runs end with the test, and faults with it but for a behaviour: each test has contexts of its own."""
    fleet = Fleet(*site)
    yield fleet
    fleet.end_runs()
    fleet.hub.faults()
    for host in fleet.hosts:
        thaw(host)
        if not host.machine.cable.plugged:
            host.machine.heal()


def freeze(host: Host) -> None:
    """From now on the machine hangs: its network takes packets, and no process of it does anything."""
    (host.machine._cgroup.path / "cgroup.freeze").write_text("1")


def thaw(host: Host) -> None:
    (host.machine._cgroup.path / "cgroup.freeze").write_text("0")


def states(run: Run) -> dict[str, str]:
    return {host["host"]: host["state"] for host in run.json["hosts"]}


def errors(run: Run) -> dict[str, str]:
    """What each failed host said."""
    return {
        host["host"]: "; ".join(e["message"] for e in host["errors"]) for host in run.json["hosts"] if host["errors"]
    }


def context(host: Host) -> int:
    """What the host's service runs with, and answers."""
    assert host.answers(), host.name
    (found,) = re.findall(r"--ctx-size (\d+)", host.tell(f"cat {UNIT_FILE}"))
    return int(found)


def typed(fleet: Fleet, run: Run) -> Run:
    """Types what a run said to type next."""
    rigup, *words = shlex.split(run.json["rollout"]["next"])
    assert rigup == "rigup"
    return fleet.rigup(*words, "--json")


def test_four_of_eight_in_trouble_and_the_other_four_end_right(fleet: Fleet) -> None:
    fleet.describe(hosts=MACHINES)
    off, full, rebooting, crashing = fleet.hosts[4:]
    off.machine.cut()
    full.tell("mkdir -p /var/lib/rigup; mount -t tmpfs -o size=40m,mode=755 tmpfs /var/lib/rigup")
    crashing.behave(8192, "crash")
    fleet.hub.faults(bytes_per_second=SLOW)
    run = fleet.start("apply", "--yes", "--json")
    wait_for(lambda: rebooting.part_bytes() and full.part_bytes(), "downloads", 120)
    full.tell("! dd if=/dev/zero of=/var/lib/rigup/filler bs=64k status=none")
    rebooting.machine.reboot()
    fleet.hub.faults()
    assert run.wait() == 1, run.text

    right, trouble = states(run), errors(run)
    assert [right[host.name] for host in fleet.hosts[:4]] == ["unchanged", "changed", "changed", "changed"]
    assert all(host.answers() for host in fleet.hosts[:4])
    assert right[off.name] == "unreachable" and trouble[off.name].startswith(f"{off.name}: ")
    assert right[full.name] == "failed" and "disk full" in trouble[full.name]
    assert right[crashing.name] == "failed" and " no earlier release" in trouble[crashing.name]
    if right[rebooting.name] != "changed":
        assert re.search("interrupted|connection lost", trouble[rebooting.name])
    assert set(trouble) <= {host.name for host in fleet.hosts[4:]}
    assert "Traceback" not in run.text

    off.machine.heal()
    full.tell("rm /var/lib/rigup/filler")
    crashing.tell(f"rm -r {REHEARSAL}")
    again = fleet.apply()
    assert set(states(again).values()) == {"unchanged", "changed"}
    assert all(host.answers() for host in fleet.hosts)
    assert set(states(fleet.apply()).values()) == {"unchanged"}


def test_canary_then_a_failure_then_stop_then_on_from_there(fleet: Fleet) -> None:
    fleet.describe(hosts=3)
    fleet.apply()  # nothing to do after the test above
    fleet.describe(hosts=3, context=4096)
    one, two, three = fleet.hosts[:3]
    two.behave(4096, "crash")
    stopped = fleet.apply("--rolling", "1", expect=1)

    told = stopped.json["rollout"]
    assert (told["batches"], told["done"], told["not_begun"]) == ([[one.name], [two.name]], [one.name], [three.name])
    assert states(stopped) == {one.name: "changed", two.name: "failed", three.name: "not begun"}
    assert told["failed"][two.name].endswith(", which answers")
    assert told["next"] == "rigup apply --yes --rolling 1 --resume"
    assert [context(host) for host in (one, two, three)] == [4096, 8192, 8192]
    assert re.search(rf"next: .*\b{two.name}\b.*: rigup apply --yes --rolling 1 --resume", stopped.text)
    assert fleet.rigup("log", three.name, "--json").json["applies"][-1]["result"] != "not begun"

    two.tell(f"rm -r {REHEARSAL}")
    done = typed(fleet, stopped)
    assert done.json["rollout"]["batches"] == [[two.name], [three.name]]
    assert done.json["rollout"]["next"] is None
    assert [context(host) for host in (one, two, three)] == [4096] * 3
    none = fleet.apply("--rolling", "1", "--resume", expect=2)
    assert re.match(r"--resume: .*\binventories/rehearsal\.py\b", none.json["error"]["message"])


def test_killed_in_a_batch_while_a_second_controller_wants_in_and_resumed(fleet: Fleet) -> None:
    fleet.describe(hosts=4, context=2048)
    one, two, three, four = fleet.hosts[:4]
    two.behave(2048, "unhealthy")
    first = fleet.start("apply", "--yes", "--rolling", "2")
    first.wait_to_say(f"batch 1 of 2: {two.name}, {three.name}", 120)
    first.wait_to_say(f"{two.name}  service  waiting for chat")

    refused = fleet.apply("--rolling", "2", "--resume", expect=1)
    assert refused.json["rollout"]["batches"] == []
    assert set(states(refused).values()) == {"failed"}
    for message in errors(refused).values():
        assert f" (process {first.process.pid}) since 20" in message
    first.kill()
    assert context(one) == 2048

    lock = fleet.root / "rigup.lock"
    text = lock.read_text()
    lock.write_text(f"{text}\n# another\n")
    other = fleet.apply("--rolling", "2", "--resume", expect=1)
    assert " rigup.lock: sha256 " in other.json["error"]["message"]
    lock.write_text(text)
    fleet.describe(hosts=4, context=1024)
    planned = fleet.apply("--rolling", "2", "--resume", expect=1).json["error"]
    named = ", ".join(host.name for host in (one, two, three, four))
    assert planned["message"].endswith(f" plan for {named}")

    fleet.describe(hosts=4, context=2048)
    two.tell(f"rm -r {REHEARSAL}")
    resumed = fleet.apply("--rolling", "2", "--resume")
    batches = resumed.json["rollout"]["batches"]
    assert batches[0] == [two.name]
    assert [one.name] not in batches
    assert [context(host) for host in fleet.hosts[:4]] == [2048] * 4


def test_an_unreachable_host_counts_before_anything_is_begun(fleet: Fleet) -> None:
    fleet.describe(hosts=3, context=1024)
    one, off, three = fleet.hosts[:3]
    before = [context(host) for host in (one, off, three)]
    off.machine.cut()
    stopped = fleet.apply("--rolling", "2", expect=1)
    assert states(stopped) == {one.name: "not begun", off.name: "unreachable", three.name: "not begun"}
    assert stopped.json["rollout"]["next"] == "rigup apply --yes --rolling 2"
    assert [context(one), context(three)] == [before[0], before[2]]

    partly = fleet.apply("--rolling", "2", "--max-failures", "1", expect=1)
    assert partly.json["rollout"]["batches"] == [[one.name], [three.name]]
    assert partly.json["rollout"]["next"] == "rigup apply --yes --rolling 2 --max-failures 1 --resume"
    off.machine.heal()
    assert typed(fleet, partly).json["rollout"]["batches"] == [[off.name]]
    assert [context(host) for host in (one, off, three)] == [1024] * 3


def test_a_controller_that_hangs_is_overcome_by_breaking_its_lease(fleet: Fleet) -> None:
    fleet.describe(hosts=2, context=512)
    one, two = fleet.hosts[:2]
    one.behave(512, "unhealthy")
    first = fleet.start("apply", "--yes", "--rolling", "1")
    first.wait_to_say(f"{one.name}  service  waiting for chat", 120)
    first.process.send_signal(signal.SIGSTOP)

    refused = errors(fleet.apply(expect=1))
    assert set(refused) == {one.name, two.name}
    one.tell(f"rm -r {REHEARSAL}")
    second = fleet.apply("--break-lease")
    assert re.search(rf"{one.name}: .* \(process {first.process.pid}\) since 20", second.text)
    assert [context(host) for host in (one, two)] == [512, 512]


@pytest.mark.parametrize(("seconds", "context"), [(200, 7168), (-200, 6144)], ids=["ahead", "behind"])
def test_a_clock_that_is_a_little_wrong_does_not_matter(fleet: Fleet, seconds: int, context: int) -> None:
    fleet.describe(hosts=2, context=context)
    fleet.rigup("apply", "--yes", "--rolling", "1", before=AHEAD.format(seconds=seconds))
    assert fleet.host.answers()


def test_hosts_that_hang_are_named_and_hold_nobody_up_for_long(fleet: Fleet) -> None:
    fleet.describe(hosts=3, context=256)
    one, early, late = fleet.hosts[:3]
    late.tell(f"systemctl stop {UNIT}; rm -rf {WEIGHTS}/*")
    freeze(early)
    fleet.hub.faults(bytes_per_second=SLOW)
    run = fleet.start("apply", "--yes", "--json", before=IMPATIENT)
    wait_for(lambda: late.part_bytes(), "a download", 120)
    freeze(late)
    assert run.wait() == 1, run.text
    assert states(run) == {one.name: "changed", early.name: "unreachable", late.name: "failed"}
    assert context(one) == 256
    said = errors(run)
    assert " SSH" in said[early.name]
    assert "connection lost" in said[late.name]

    fleet.hub.faults()
    thaw(early)
    thaw(late)
    assert [host for host, state in states(fleet.apply()).items() if state == "changed"] == [early.name, late.name]
    assert [context(host) for host in (one, early, late)] == [256] * 3
