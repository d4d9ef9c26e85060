"""Back to a release that ran before: it answers, or the one that ran answers again; and both are on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab.fleet import ANSWER, UNIT_FILE, Fleet

pytestmark = pytest.mark.lab

SERVICE = "/etc/rigup/services/chat"
ORDER = ["8192", "4096", "2048"]


@pytest.fixture
def served(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A fleet whose service has had three releases, one for each context, and runs the last. Nothing is on record."""
    host = fleet.host
    host.tell("rm -rf /run/rigup-test")
    if (
        host.tell(f"cat {SERVICE}/releases/*/unit 2>/dev/null | grep -o 'ctx-size [0-9]*' || true").split()[1::2]
        != ORDER
    ):
        host.tell(f"rm -rf {SERVICE}/releases/* {SERVICE}/current")
        for context in ORDER:
            fleet.describe(context=int(context))
            fleet.apply()
    elif host.tell(f"readlink {SERVICE}/current") != "releases/3":
        fleet.rigup("rollback", "--yes", "--to", "3")
    fleet.describe(context=2048)
    host.tell("rm -rf /var/log/rigup")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return fleet


def context(fleet: Fleet) -> str:
    """The context of the unit that is installed."""
    return fleet.host.tell(f"grep -o 'ctx-size [0-9]*' {UNIT_FILE}")


def kept(fleet: Fleet) -> list[dict[str, Any]]:
    """The releases as rigup lists them."""
    listed: list[dict[str, Any]] = fleet.rigup("releases", "--json").json["hosts"][fleet.host.name]["chat"]
    return listed


def log(fleet: Fleet, *words: str) -> list[dict[str, Any]]:
    """What rigup says was applied."""
    applies: list[dict[str, Any]] = fleet.rigup("log", fleet.host.name, "--json", *words).json["applies"]
    return applies


def test_to_a_certain_release_and_a_plan_that_is_refused_does_not_matter(served: Fleet) -> None:
    served.describe(context=1)
    served.rigup("rollback", "--yes", "--to", "1")
    assert context(served) == "ctx-size 8192"
    refused = served.rigup("rollback", "--yes", "--to", "1", expect=1).text
    name = served.host.name
    assert f"{name}: chat: release 1 " in refused
    assert " 1 (current), 2, 3; " in refused and "rigup releases" in refused
    assert f"{name}: chat: release 9 " in served.rigup("rollback", "--yes", "--to", "9", expect=1).text


def test_a_release_that_does_not_answer_any_more_gives_way_to_the_one_that_ran(served: Fleet) -> None:
    served.host.behave(4096, "crash")
    run = served.rigup("rollback", "--yes", "--json", expect=1)
    (error,) = run.json["hosts"][0]["errors"]
    assert "; release 3 " in error["message"]
    assert context(served) == "ctx-size 2048"
    assert served.host.answers()
    assert [release["number"] for release in kept(served) if release["current"]] == [3]


def test_a_release_whose_build_is_gone_is_refused_before_anything_stops(served: Fleet) -> None:
    (build,) = served.host.tell("ls -d /opt/rigup/builds/*").split()
    since = served.host.show("ActiveEnterTimestampMonotonic")
    served.host.tell(f"mv {build} {build}.away")
    try:
        said = served.rigup("rollback", "--yes", expect=1).text
    finally:
        served.host.tell(f"mv {build}.away {build}")
    assert f"{served.host.name}: chat: release 2 " in said and f" {build}" in said
    assert served.host.show("ActiveEnterTimestampMonotonic") == since


def test_the_release_before_is_back_and_answers_and_is_on_record(served: Fleet) -> None:
    listed = kept(served)
    assert [(release["number"], release["current"], release["answered"]) for release in listed] == [
        (1, False, True),
        (2, False, True),
        (3, True, True),
    ]
    assert [release["changed"] for release in listed] == [[], ["--ctx-size 8192 -> 4096"], ["--ctx-size 4096 -> 2048"]]

    run = served.rigup("rollback", "--yes", "--json")
    (result,) = run.json["hosts"]
    assert (result["state"], result["changes"]) == (
        "changed",
        [{"role": "service", "step": "release 2 of chat (now 3)"}],
    )
    assert [answer["text"] for answer in result["answers"]] == [ANSWER]
    assert context(served) == "ctx-size 4096"
    assert served.host.answers()
    assert [release["number"] for release in kept(served) if release["current"]] == [2]

    # the inventory still says what it said: diff tells, and apply goes forward again
    assert served.rigup("diff", "--json", expect=1).json["hosts"][0]["state"] == "differs"
    served.apply()
    assert context(served) == "ctx-size 2048"
    records = log(served)
    assert [(record["verb"], record["result"]) for record in records] == [("rollback", "changed"), ("apply", "changed")]
    assert [record["changes"] for record in records] == [
        ["service: release 2 of chat (now 3)"],
        ["service: release of chat"],
    ]
    assert records == log(served, "--here")
