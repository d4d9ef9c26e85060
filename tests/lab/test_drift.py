"""What a person did to a host by hand, told by `rigup diff` and `rigup status`; what apply mends and what it leaves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.lab.fleet import MODEL_FILE, REPO, UNIT, UNIT_FILE, WEIGHTS, Fleet, Run, wait_for
from tests.unit.run.test_drift import LEFT_OVER

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rests_on("the run", "drift and status", "reports", "weights", "images"),
]

OVERRIDE = f"{UNIT_FILE}.d/override.conf"
PLANTED = {"token": "hf_plantedtokenplantedtoken", "key": "planted-key-of-mine", "proxy": "planted-proxy-password"}
MODEL = f"{WEIGHTS}/{REPO}/*/{MODEL_FILE}"


@pytest.fixture
def applied(fleet: Fleet) -> Fleet:
    """The fleet, applied."""
    fleet.apply()
    return fleet


def drift(run: Run) -> set[tuple[str, str]]:
    """What has drifted, with the service."""
    (host,) = run.json["hosts"]
    return {(found["what"], found["service"]) for found in host["drift"]}


def steps(run: Run) -> list[str]:
    """What apply would change."""
    return [change["step"] for change in run.json["hosts"][0]["changes"]]


def rows(run: Run) -> dict[str, dict[str, Any]]:
    """The services of a status, by name."""
    return {row["service"]: row for row in run.json["services"]}


def test_what_was_done_by_hand_is_told_and_what_apply_does_not_mend_stays_told(applied: Fleet) -> None:
    host = applied.host
    host.tell(
        f"sed -i 's/--parallel 1/--parallel 2/' {UNIT_FILE}; systemctl disable --quiet {UNIT}; "
        f"mkdir -p $(dirname {OVERRIDE}) /etc/rigup/services/old/releases; "
        f"printf '[Service]\\nNice=5\\n' > {OVERRIDE}; systemctl daemon-reload; systemctl stop {UNIT}; "
        f"touch {MODEL}"
    )

    told = applied.rigup("diff", "--json", expect=1)
    by_hand = {("unit overrides", "chat"), (LEFT_OVER, "old")}
    assert drift(told) == by_hand | {("unit", "chat"), ("state", "chat"), ("checkpoint", "chat")}
    assert steps(told) == [f"weights {REPO} Q4_1", "release of chat"]
    messages = [(found["what"], found["message"]) for found in told.json["hosts"][0]["drift"]]
    assert any(what == "checkpoint" and message.endswith(f": {MODEL_FILE}") for what, message in messages)
    for state in ("inactive", "disabled"):
        assert any(message.startswith(f"{UNIT} is {state}") for _, message in messages)

    applied.apply()
    left = applied.rigup("diff", "--json", expect=1)
    assert (drift(left), steps(left), left.json["hosts"][0]["state"]) == (by_hand, [], "differs")
    found = rows(applied.rigup("status", "--json", expect=1))
    assert (found["chat"]["health"], found["chat"]["drift"]) == ("answers", "unit overrides")
    assert found["old"]["drift"] == LEFT_OVER
    host.tell(f"systemctl revert {UNIT} 2>/dev/null; rm -rf /etc/rigup/services/old; systemctl restart {UNIT}")
    wait_for(host.answers, "the service")


def test_only_a_deep_diff_finds_bytes_that_rotted_in_silence(applied: Fleet) -> None:
    rot = (
        f"m=$(ls {MODEL}); t=$(stat -c %y $m); "
        'printf rot | dd of=$m bs=1 seek=1000 conv=notrunc status=none; touch -d "$t" $m'
    )
    applied.host.tell(rot)
    assert drift(applied.rigup("diff", "--json")) == set()
    deep = applied.rigup("diff", "--deep", "--json", expect=1)
    (found,) = deep.json["hosts"][0]["drift"]
    assert found["what"] == "checkpoint" and found["message"].endswith(f": {MODEL_FILE}")
    applied.host.tell(f"touch {MODEL}")
    assert steps(applied.apply()) == [f"weights {REPO} Q4_1"]


def test_watch_asks_again_over_the_same_connection_until_it_is_ended(applied: Fleet) -> None:
    run = applied.start("status", "--watch", "0.2", "--json")

    def refreshes() -> list[dict[str, Any]]:
        whole, _, _ = run.stdout.read_text().rpartition("\n")  # the last line may be on its way
        return [json.loads(line)["services"][0] for line in whole.splitlines()]

    wait_for(lambda: len(refreshes()) >= 2, "two refreshes")
    logins = "journalctl -u 'ssh*' -o cat | grep -c 'Accepted publickey'"
    before = int(applied.host.tell(logins))
    applied.host.tell(f"systemctl stop {UNIT}")
    wait_for(lambda: refreshes()[-1]["unit"] == "inactive", "the change")
    assert refreshes()[-1]["health"] == "stopped"
    assert int(applied.host.tell(logins)) - before <= 3, "it logs in anew each time"
    run.interrupt()
    assert run.wait() == 0
    assert refreshes()[0]["health"] == "answers"
    applied.host.tell(f"systemctl start {UNIT}")


@pytest.fixture
def two(applied: Fleet) -> Fleet:
    """The fleet with a second service, both behind keys: one of the user's, one that is made on the host."""
    secrets, group_data = applied.root / "secrets", applied.root / "group_data/boxes.py"
    secrets.mkdir(exist_ok=True)
    for name, secret in PLANTED.items():
        (secrets / name).write_text(secret)
        (secrets / name).chmod(0o600)
    group_data.write_text(
        f"{group_data.read_text()}hub_token_file = 'secrets/token'\n"
        "services['chat'] |= {'listen': '0.0.0.0', 'api_key_file': 'secrets/key'}\n"
        "services['second'] = {**services['chat'], 'port': 8001, 'api_key_file': None}\n"
    )
    applied.apply()
    return applied


def test_a_report_has_what_helps_and_no_secret(two: Fleet) -> None:
    host = two.host
    made = host.tell("cat /etc/rigup/services/second/api-key")
    said = f"key {made} {PLANTED['key']}; token {PLANTED['token']}; via http://ada:{PLANTED['proxy']}@proxy:3128"
    host.tell(f"systemd-run --quiet --wait --collect --unit=rigup-leak echo '{said}'; systemctl stop rigup-second")

    run = two.rigup("report", host.name, "--json")
    path = two.root / run.json["file"]
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    for secret in (*PLANTED.values(), made):
        assert secret not in text
    assert "key [redacted] [redacted]; token [redacted]; via http://ada:[redacted]@proxy:3128" in text
    for title in ("versions", "inventory", "plans", "differs", "probe", "last record there", "journals"):
        assert f"==== {title} ====" in text
    assert f'"{host.name}"' in text and "rigup-second.service is inactive" in text
    assert "--- rigup-chat.service" in text and '"api_key_file": "secrets/key"' in text


def test_a_service_that_left_the_inventory_is_told_and_taken_away(two: Fleet) -> None:
    host = two.host
    pid = host.tell(f"systemctl show {UNIT} -P MainPID")
    assert host.tell("stat -c %a /etc/rigup/services/second/api-key") == "600"
    group_data = two.root / "group_data/boxes.py"
    group_data.write_text(group_data.read_text() + "del services['second']\n")
    told = two.rigup("diff", "--json", expect=1)
    assert (drift(told), steps(told)) == ({(LEFT_OVER, "second")}, [])
    left = two.rigup("apply", "--yes")
    assert re.search(rf"{host.name}: .*\bsecond\b.*: rigup apply --remove", left.text)
    assert host.says("systemctl is-active rigup-second")

    assert steps(two.apply("--remove")) == ["service second"]
    rest = host.tell("find /etc /run/systemd /var/cache -name '*second*' -path '*rigup*'; ls /etc/rigup/services")
    assert rest == "chat"
    assert not host.says("systemctl is-active rigup-second")
    assert host.tell(f"systemctl show {UNIT} -P MainPID") == pid
    assert steps(two.apply("--remove")) == []

    group_data.write_text(group_data.read_text() + "services = {}\n")
    assert f"{host.name}: serves nothing" in two.rigup("plan").text
    assert drift(two.rigup("diff", "--json", expect=1)) == {(LEFT_OVER, "chat")}
    # the token of an earlier test goes, since nothing there needs it any more
    assert set(steps(two.apply())) <= {"no hub token"}
    assert host.tell(f"systemctl show {UNIT} -P MainPID") == pid
    assert steps(two.apply("--remove")) == ["service chat"]
    assert host.tell("ls /etc/rigup/services") == ""
    assert rows(two.rigup("status", "--json")) == {}


def test_a_report_of_a_host_that_does_not_answer_says_so_and_has_the_rest(fleet: Fleet) -> None:
    fleet.host.machine.cut()
    try:
        run = fleet.rigup("report", fleet.host.name, "--output", "-", expect=1)
    finally:
        fleet.host.machine.heal()
    assert "==== plans ====" in run.text and "==== probe ====" not in run.text
    assert f"{fleet.host.name}: " in run.text.partition("==== errors ====")[2]
