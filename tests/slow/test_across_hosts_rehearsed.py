"""One service over two booted machines with the stand-in engine: all or none, whatever happens on one of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from tests.lab.fleet import REHEARSAL, UNIT, Fleet, Host, wait_for
from tests.lab.fleet_fixtures import made_site
from tests.lab.readers import Readers, all_whole

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.rests_on("the run", "node groups", "src/rigup/run/rollback.py"),
]

PATIENCE = 20
CURRENT = "/etc/rigup/services/chat/current"
SLOW_SWITCH = (
    "import rigup.operations.multinode.releases as releases\nreleases.trouble = lambda *_: releases.gevent.sleep(60)"
)
IMPATIENT = "import rigup.operations.multinode.releases as releases\nreleases.LOST_SECONDS = 6"


class Pair(Fleet):
    """Two machines that serve together: the first is the head."""

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def other(self) -> Host:
        return self.hosts[1]

    def want(self, context: int, **service: Any) -> None:
        """Describes the pair; each release of a test has a context of its own."""
        settings = {"start_timeout": PATIENCE, **service}
        self.describe(2, rig={"hosts_per_service": 2}, context=context, **settings)

    def by_host(self, *words: str, expect: int = 0, before: str = "") -> list[dict[str, Any]]:
        """What `rigup apply` says of the head and of the other."""
        found: list[dict[str, Any]] = self.rigup("apply", "--yes", "--json", *words, expect=expect, before=before).json[
            "hosts"
        ]
        return found

    def status(self, expect: int = 0) -> list[tuple[str, str]]:
        """Health and drift of the head and of the other."""
        rows = self.rigup("status", "--json", expect=expect).json["services"]
        return [(row["health"], row["drift"]) for row in rows]

    def wholes(self) -> set[str]:
        """Which wholes the current releases are parts of: one, if they belong together."""
        return {json.loads(host.tell(f"cat {CURRENT}/release.json"))["set"]["id"] for host in self.hosts}

    def serves(self, context: int) -> bool:
        """Whether both are on one whole, the head has this context, and answers."""
        asked = f'grep -q -- \'--ctx-size", "{context}"\' {CURRENT}/release.json'
        return len(self.wholes()) == 1 and self.head.says(asked) and self.head.answers()


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, StandInHub, Path, Path]]:
    """The pair, with a first release that both serve."""
    with (
        pytest.MonkeyPatch.context() as patch,
        made_site(tmp_path_factory.mktemp("site"), f"pair{os.getpid()}", hosts=2) as made,
    ):
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield made


@pytest.fixture
def pair(site: tuple[Lab, StandInHub, Path, Path]) -> Iterator[Pair]:
    """The pair as an earlier test left it, faults mended."""
    pair = Pair(*site)
    yield pair
    pair.end_runs()
    for host in pair.hosts:
        host.machine.heal()
        host.machine.power_on()
        host.tell(f"rm -rf {REHEARSAL} /var/filler")


def errors(result: dict[str, Any]) -> list[str]:
    return [error["message"] for error in result["errors"]]


def test_two_machines_serve_as_one(pair: Pair) -> None:
    pair.want(8192)
    first = pair.by_host()
    assert [host["state"] for host in first] == ["changed", "changed"]
    assert [len(host["answers"]) for host in first] == [1, 0], "the head alone has the API"
    assert pair.serves(8192) and not pair.other.answers()
    again = pair.by_host()
    assert [(host["state"], host["changes"]) for host in again] == [("unchanged", []), ("unchanged", [])]
    assert pair.status() == [("answers", "none"), ("joined", "none")]
    said = pair.rigup("apply", "--yes", "--limit", pair.other.name, expect=2).text
    assert f" {pair.head.name}, {pair.other.name}" in said
    for host in pair.hosts:
        told = pair.rigup("report", host.name, "--output", "-").text
        assert '"state": "unchanged"' in told and "--- rigup-chat.service" in told


def test_a_release_that_does_not_answer_goes_back_on_both(pair: Pair) -> None:
    pair.head.behave(4096, "crash")
    pair.want(4096, start_timeout=60)
    head, other = pair.by_host(expect=1)
    (said,) = errors(head)
    assert re.match(rf"{pair.head.name}: chat: .*: systemd .* 2 times; ", said)
    assert f" release 1 on {pair.head.name} and 1 on {pair.other.name}, " in said
    (of_other,) = errors(other)
    assert of_other == f"{pair.other.name}: {said}"
    assert (head["state"], other["state"]) == ("failed", "failed")
    assert pair.serves(8192)


def test_a_part_that_cannot_be_staged_leaves_the_service_alone(pair: Pair) -> None:
    since = pair.head.show("ActiveEnterTimestampMonotonic")
    pair.want(4096)
    releases = "/etc/rigup/services/chat/releases"
    pair.other.tell(f"mount -t tmpfs -o ro,size=1m none {releases}")
    head, other = pair.by_host(expect=1)
    pair.other.tell(f"umount {releases}")
    (said,) = errors(head)
    assert said.startswith(f"{pair.head.name}: chat ") and said.endswith(f": {errors(other)[0]}")
    assert "Read-only file system" in errors(other)[0]
    assert pair.head.show("ActiveEnterTimestampMonotonic") == since
    assert pair.head.answers()


def test_a_part_that_is_killed_heals_without_anybody(pair: Pair) -> None:
    pair.want(8192)
    pair.by_host()
    before = pair.head.show("InvocationID")
    pair.other.tell("kill -9 $(pgrep -f ggml-rpc-server | head -n1); pkill -9 ggml-rpc-server || true")
    # it may be back before anybody has seen it away
    wait_for(lambda: not pair.head.answers() or pair.head.show("InvocationID") != before, "the head to notice")
    wait_for(pair.head.answers, "the pair to serve again")
    assert pair.by_host()[0]["state"] == "unchanged"


def test_a_machine_that_loses_power_is_named_and_its_return_heals(pair: Pair) -> None:
    pair.other.machine.power_off()
    wait_for(lambda: not pair.head.answers(), "the head to notice", 30)
    assert pair.status(expect=1) == [(f"no answer: waiting for {pair.other.name}", "none"), ("unreachable", "unknown")]
    head, other = pair.by_host(expect=1)
    (said,) = errors(head)
    assert said.startswith(f"{pair.head.name}: chat ") and said.endswith(f": {errors(other)[0]}")
    assert (head["state"], other["state"]) == ("not begun", "unreachable")
    pair.other.machine.power_on()
    wait_for(pair.head.answers, "the pair to serve again")
    assert [host["state"] for host in pair.by_host()] == ["unchanged", "unchanged"]


def test_a_part_that_never_joins_is_named(pair: Pair) -> None:
    pair.other.tell(f"mkdir -p {REHEARSAL}; echo deaf > {REHEARSAL}/behaviour-rpc")
    pair.want(2048)
    head, _ = pair.by_host(expect=1)
    (said,) = errors(head)
    assert f"; not joined: {pair.other.name}; " in said, said
    pair.other.tell(f"rm {REHEARSAL}/behaviour-rpc; pkill -9 ggml-rpc-server")
    wait_for(lambda: pair.serves(8192), "the earlier release to serve again", 90)


def test_a_machine_lost_while_starting_is_named_and_the_head_goes_back(pair: Pair) -> None:
    pair.head.behave(2048, "unhealthy")
    pair.want(
        2048,
    )
    run = pair.start("apply", "--yes", "--json", before=IMPATIENT)
    run.wait_to_say("waiting for chat")
    pair.other.machine.power_off()
    assert run.wait() == 1, run.text
    head, _ = run.json["hosts"]
    assert pair.other.name in errors(head)[0], errors(head)
    pair.other.machine.power_on()
    pair.want(8192)
    pair.by_host()
    assert pair.serves(8192)


def test_a_killed_controller_leaves_nothing_that_the_next_run_cannot_end(pair: Pair) -> None:
    pair.want(1024)
    run = pair.start("apply", "--yes", "--json", before=SLOW_SWITCH)
    wait_for(lambda: len(pair.wholes()) == 2, "the other to be switched and the head not")
    run.kill()
    states = [host["state"] for host in pair.by_host()]
    assert states == ["changed", "changed"]
    assert pair.serves(1024)


def test_ctrl_c_while_it_starts_leaves_both_on_the_new_release(pair: Pair) -> None:
    pair.head.behave(512, "unhealthy")
    pair.want(512)
    run = pair.start("apply", "--yes", "--json")
    run.wait_to_say("waiting for chat")
    run.interrupt()
    assert run.wait() == 130, run.text
    assert len(pair.wholes()) == 1
    pair.head.tell(f"rm -rf {REHEARSAL}")
    assert [host["state"] for host in pair.by_host()] == ["changed", "changed"]
    assert pair.serves(512)


def test_one_of_them_goes_back_and_so_does_the_other(pair: Pair) -> None:
    back = pair.rigup("rollback", "--yes", "--json", "--limit", pair.other.name).json["hosts"]
    assert [host["state"] for host in back] == ["changed", "changed"]
    assert pair.serves(1024)
    listed = pair.rigup("releases").text
    assert f"on {pair.head.name} and {pair.other.name}" in listed
    assert [drift for _, drift in pair.status(expect=1)] == ["command, config", "config"]


def test_a_set_rolls_as_one(pair: Pair) -> None:
    pair.want(8192)
    done = pair.rigup("apply", "--yes", "--json", "--rolling", "1").json
    assert done["rollout"]["batches"] == [[pair.head.name, pair.other.name]]
    assert pair.serves(8192)


def test_answers_end_whole_when_a_release_changes_or_the_other_machine_stops(pair: Pair) -> None:
    pair.want(8192)
    pair.by_host()
    readers, words = Readers(pair.head, pair.head), 150
    begun = readers.begin(words)
    pair.want(2048)
    pair.by_host()
    assert all_whole(begun, words) and pair.serves(2048)
    begun = readers.begin(words)
    pair.other.tell(f"systemctl stop {UNIT}")
    assert all_whole(begun, words)
    assert re.search(r"\bhost 1 .* stop; ", pair.head.tell(f"journalctl -o cat -u {UNIT}"))
    pair.other.tell(f"systemctl start {UNIT}")
    wait_for(lambda: pair.serves(2048), "both to serve again")
    readers.close()


def test_both_lose_it_when_the_inventory_does_not_name_it_any_more(pair: Pair) -> None:
    pair.want(8192)
    path = pair.root / "group_data/boxes.py"
    path.write_text(path.read_text().replace('"chat"', '"talk"').replace("'port': 8000", "'port': 8001"))
    pair.by_host("--remove")
    assert all(host.says("! test -e /etc/rigup/services/chat") for host in pair.hosts)
