"""A new release must answer, or the one before it comes back; and the API key is nobody else's to see."""

from __future__ import annotations

import pytest

from tests.lab.fleet import UNIT, UNIT_FILE, Fleet, Run

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run")]

GOOD, BAD = 8192, 4096
SERVICE = "/etc/rigup/services/chat"
KEY_FILE = f"{SERVICE}/api-key"
# A model of 24 MB may take five minutes to be ready: the tests have less patience.
IMPATIENT = {"start_timeout": 12}


@pytest.fixture
def serving(fleet: Fleet) -> Fleet:
    """A fleet whose service runs a good release."""
    fleet.host.tell("rm -rf /run/rigup-test")
    fleet.apply()
    assert fleet.host.answers()
    return fleet


def releases(fleet: Fleet) -> list[int]:
    """The releases that the host keeps, by number."""
    return sorted(int(number) for number in fleet.host.tell(f"ls {SERVICE}/releases").split())


def current(fleet: Fleet) -> int:
    """The number of the current release."""
    return int(fleet.host.tell(f"basename $(readlink {SERVICE}/current)"))


def test_a_new_release_replaces_the_old_one_and_three_are_kept(serving: Fleet) -> None:
    before = current(serving)
    for step, context in enumerate((4096, 2048, 1024), start=1):
        serving.describe(context=context)
        assert serving.apply().json["hosts"][0]["changes"] == [{"role": "service", "step": "release of chat"}]
        assert current(serving) == before + step
        assert f"--ctx-size {context}" in serving.host.tell(f"cat {UNIT_FILE}")
    assert serving.host.answers()
    assert releases(serving) == [before + 1, before + 2, before + 3]


@pytest.mark.parametrize(
    ("how", "patience", "why", "logged"),
    [
        ("crash", {}, "systemd ", "stand-in: rehearsed crash, context: 4096"),
        ("unhealthy", IMPATIENT, "/health ", "stand-in: context 4096, listening"),
        ("empty", IMPATIENT, " empty", "stand-in: context 4096, listening"),
        ("nonsense", IMPATIENT, '"Paris" (services.chat.expected_answer)', "stand-in: context 4096, listening"),
    ],
    ids=["crash", "unhealthy", "empty", "nonsense"],
)
def test_a_release_that_does_not_answer_gives_way_to_the_one_before(
    serving: Fleet, how: str, patience: dict[str, int], why: str, logged: str
) -> None:
    before = current(serving)
    serving.host.behave(BAD, how)
    serving.describe(context=BAD, port=8099, **patience)  # the one before is asked where it listens, at its own port
    run = serving.rigup("apply", "--yes", "--json", expect=1)

    (error,) = run.json["hosts"][0]["errors"]
    assert why in error["message"]
    assert f" release {before}, " in error["message"]
    assert logged in run.stderr.read_text()
    assert current(serving) == before
    assert f"--ctx-size {GOOD}" in serving.host.tell(f"cat {UNIT_FILE}")
    assert serving.host.answers()
    serving.describe(context=BAD)
    assert serving.rigup("status", "--json", expect=1).json["services"][0]["health"] == "answers"


def test_a_release_whose_answer_turns_wrong_stays_and_nothing_says_that_it_answers(serving: Fleet) -> None:
    before = current(serving)
    for context in (GOOD, BAD):
        serving.host.behave(context, "nonsense")
    serving.describe(context=BAD)
    (error,) = serving.apply(expect=1).json["hosts"][0]["errors"]
    assert f" release {before} also failed: " in error["message"] and "answers" not in error["message"]
    serving.describe()
    for words in (("apply", "--yes", "--json"), ("restart", "chat", "--json"), ("status", "--json")):
        (error,) = serving.rigup(*words, expect=1).json["hosts"][0]["errors"]
        assert 'the", without "Paris" ' in error["message"]
        assert current(serving) == before
    serving.host.tell("rm -rf /run/rigup-test")
    serving.rigup("restart", "chat")
    serving.converges()
    assert current(serving) == before


def test_another_expected_answer_is_asked_for_without_a_start(serving: Fleet) -> None:
    pid, before = serving.host.show("MainPID"), current(serving)
    serving.describe(expected_answer="France")
    serving.apply()
    assert '"expected_answer": "France"' in serving.host.tell(f"cat {SERVICE}/current/release.json")
    serving.describe(expected_answer="Berlin")
    for _ in range(2):
        (error,) = serving.apply(expect=1).json["hosts"][0]["errors"]
        assert 'without "Berlin" (services.chat.expected_answer)' in error["message"]
    assert serving.rigup("status", "--json", expect=1).json["services"][0]["drift"] != "none"
    serving.describe()
    serving.converges()
    assert (serving.host.show("MainPID"), current(serving)) == (pid, before)


def test_an_answer_that_was_never_waited_for_is_waited_for_by_the_next_apply(serving: Fleet) -> None:
    before = current(serving)
    serving.host.behave(BAD, "unhealthy")
    serving.describe(context=BAD)
    run = serving.start("apply", "--yes")
    run.wait_to_say("waiting for chat")
    run.kill()
    assert current(serving) > before

    serving.host.behave(BAD, "empty")
    (error,) = serving.apply(expect=1).json["hosts"][0]["errors"]
    assert f" release {before}, " in error["message"]
    assert (current(serving), serving.host.answers()) == (before, True)


@pytest.mark.slow
def test_a_first_release_that_does_not_answer_is_not_left_to_crash_in_a_loop(fleet: Fleet) -> None:
    fleet.apply()
    fleet.host.tell(f"systemctl disable --quiet --now {UNIT}; rm -rf {SERVICE} {UNIT_FILE}; systemctl daemon-reload")
    fleet.host.behave(GOOD, "crash")

    run = fleet.apply(expect=1)

    assert " no earlier release" in run.json["hosts"][0]["errors"][0]["message"]
    assert fleet.host.show("LoadState,ActiveState").splitlines() == ["LoadState=not-found", "ActiveState=inactive"]
    assert not fleet.host.says(f"test -e {UNIT_FILE} || test -e {SERVICE}/current")
    fleet.host.tell("rm -rf /run/rigup-test")
    fleet.converges()


def places_that_others_read(fleet: Fleet) -> str:
    """What any user of the host, or who reads its logs, sees of the service."""
    words = f"ps -eo args; cat {UNIT_FILE} {SERVICE}/releases/*/*; systemctl show {UNIT}; journalctl -o cat"
    return fleet.host.tell(f"{words}; cat /proc/$(systemctl show {UNIT} -P MainPID)/environ | tr '\\0' '\\n'")


def answers_to(fleet: Fleet, key: str) -> str:
    """The HTTP status of a question with this key."""
    ask = f"curl -s -o /dev/null -w '%{{http_code}}' -X POST -d '{{}}' -H 'Authorization: Bearer {key}'"
    return fleet.host.tell(f"{ask} http://{fleet.host.machine.inner_address}:8000/v1/chat/completions")


def test_a_service_that_listens_to_others_gets_a_key_that_no_pipe_sees_and_that_may_be_changed(serving: Fleet) -> None:
    serving.host.tell(f"rm -f {KEY_FILE}")
    serving.describe(listen="0.0.0.0")
    first = serving.rigup("apply", "--yes")
    key = serving.host.tell(f"cat {KEY_FILE}")

    assert len(key) >= 32
    assert key not in first.text and KEY_FILE in first.text
    assert serving.host.tell(f"stat -c '%a %U:%G' {KEY_FILE}") == "600 root:root"
    assert key not in places_that_others_read(serving)
    assert (answers_to(serving, key), answers_to(serving, "wrong")) == ("200", "401")
    assert key not in _said(serving, "apply", "--yes") + _said(serving, "status", "--json")

    other = "another-key-of-thirty-two-letters"
    serving.host.tell(f"echo {other} > {KEY_FILE}")
    assert answers_to(serving, other) == "401"
    assert serving.apply().json["hosts"][0]["changes"] == [{"role": "service", "step": "release of chat"}]
    assert (answers_to(serving, other), answers_to(serving, key)) == ("200", "401")


def test_a_key_of_ones_own_comes_from_a_file_and_is_never_shown(serving: Fleet) -> None:
    for key in ("my-first-key-of-thirty-two-letters", "my-second-key-of-thirty-two-letters"):
        file = serving.root / "chat.key"
        file.write_text(f"{key}\n")
        file.chmod(0o600)
        serving.describe(listen="0.0.0.0", api_key_file="chat.key")
        assert key not in _said(serving, "apply", "--yes")
        assert serving.host.tell(f"stat -c '%a %U:%G' {KEY_FILE}; cat {KEY_FILE}").splitlines() == [
            "600 root:root",
            key,
        ]
        assert key not in places_that_others_read(serving)
        assert (answers_to(serving, key), answers_to(serving, "wrong")) == ("200", "401")
    assert serving.rigup("diff", "--json").json["hosts"][0]["changes"] == []


def _said(fleet: Fleet, *words: str) -> str:
    run: Run = fleet.rigup(*words)
    return run.text
