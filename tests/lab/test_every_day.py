"""What a user does once a service runs: read its journal, reach its API, talk to it, stop it."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from rigup.layout import APPLY_RECORDS, service_folder
from tests.lab.fleet import ANSWER, Fleet

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rests_on("the run", "running services", "benchmarks of services", "gateways"),
]


@pytest.fixture
def serving(fleet: Fleet) -> Iterator[Fleet]:
    """A fleet of one host whose service answers."""
    fleet.host.tell("rm -rf /run/rigup-test")
    fleet.apply()
    assert fleet.host.answers()
    yield fleet
    fleet.host.tell("rm -rf /run/rigup-test")


def test_the_journal_is_printed_and_followed(serving: Fleet) -> None:
    printed = serving.rigup("logs", "--json", "--lines", "1000").stdout.read_text()
    entries = [json.loads(line) for line in printed.splitlines()]
    assert {(entry["host"], entry["service"]) for entry in entries} == {(serving.host.name, "chat")}
    assert any("listening" in entry["message"] for entry in entries)
    assert [entry["time"] for entry in entries] == sorted(entry["time"] for entry in entries)

    following = serving.start("logs", "chat", "-f", "--lines", "1")
    following.wait_to_say(f"{serving.host.name} chat")
    serving.host.tell("mkdir -p /run/rigup-test; printf 'said \\033[2J later\\n' > /run/rigup-test/says")
    serving.host.tell("systemctl restart rigup-chat.service")
    following.wait_to_say("said  later")
    following.interrupt()
    assert following.wait() == 0, following.text
    assert "\x1b" not in following.text


def test_a_journal_that_has_no_end_or_says_nothing_is_not_waited_for(serving: Fleet) -> None:
    entry = json.dumps(
        {"__REALTIME_TIMESTAMP": "1700000000000000", "UNIT": "rigup-chat.service", "MESSAGE": "x" * 10_000}
    )
    own = "/usr/local/bin/journalctl"
    try:
        serving.host.tell(f"printf '#!/bin/sh\\nexec yes '\"'%s'\" '{entry}' > {own}; chmod 755 {own}")
        flooded = serving.rigup("logs", "--json", "--lines", "5").stdout.read_text()
        assert [json.loads(line)["host"] for line in flooded.splitlines()] == [serving.host.name] * 5
        serving.host.tell(f"printf '#!/bin/sh\\nexec sleep 1000' > {own}")
        hanging = serving.start("logs", "--lines", "5")
        assert hanging.wait() == 1
        assert f"{serving.host.name}: journalctl prints nothing" in hanging.text
    finally:
        serving.host.tell(f"rm -f {own}")


def test_a_port_that_is_none_fails_the_host_by_its_name(serving: Fleet) -> None:
    manifest = f"{service_folder('chat')}/current/release.json"
    kept = serving.host.tell(f"cat {manifest}")
    wrong = json.loads(kept)
    wrong["command"][wrong["command"].index("--port") + 1] = "8000; id"
    try:
        serving.host.machine.ssh(f"cat > {manifest}", input=json.dumps(wrong), check=True)
        for words in (("tunnel", "chat"), ("chat", "chat", "?"), ("status",), ("status", "--json")):
            done = serving.rigup(*words, expect=1)
            assert "Traceback" not in done.text and "uid=" not in done.text
            assert serving.host.name in done.text
    finally:
        serving.host.machine.ssh(f"cat > {manifest}", input=kept, check=True)


def test_other_users_read_no_records(serving: Fleet) -> None:
    serving.rigup("exec", "true hunter2-of-a-command")
    assert serving.host.says(f"grep -q hunter2-of-a-command {APPLY_RECORDS}")
    assert serving.host.tell(f"stat -c '%a %U:%G' {APPLY_RECORDS}") == "600 root:root"
    places = "/var/log /run /etc/rigup /var/lib/rigup /opt/rigup"
    assert not serving.host.says(f"runuser -u nobody -- grep -rqs hunter2-of-a-command {places}")
    # earlier versions left it open
    serving.host.tell(f"chmod 644 {APPLY_RECORDS}")
    serving.rigup("exec", "true")
    assert not serving.host.says(f"runuser -u nobody -- cat {APPLY_RECORDS}")


def asked(url: str, key: str = "") -> str:
    """The answer of an endpoint here, or its HTTP status."""
    head = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(f"{url}/chat/completions", b"{}", head)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
            return str(json.load(response)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        return str(error.code)


def test_an_endpoint_is_here_until_it_is_ended(serving: Fleet) -> None:
    open_ = serving.start("tunnel", "chat", "--port", "18423", "--json")
    open_.wait_to_say("}")
    (tunnel,) = open_.json["tunnels"]
    assert tunnel == {
        "host": serving.host.name,
        "service": "chat",
        "model": "smollm2-135m-instruct",
        "base_url": "http://127.0.0.1:18423/v1",
        "api_key": False,
    }
    assert asked(tunnel["base_url"]) == ANSWER
    taken = serving.rigup("tunnel", "chat", "--port", "18423", expect=2)
    assert "--port: 18423 " in taken.text
    open_.interrupt()
    assert open_.wait() == 0, open_.text
    with pytest.raises(urllib.error.URLError):
        asked(tunnel["base_url"])


def test_a_tunnel_says_that_its_connection_is_lost(serving: Fleet) -> None:
    open_ = serving.start("tunnel")
    open_.wait_to_say("Ctrl-C")
    serving.host.tell("(sleep 1; pkill -f 'sshd: .*notty') > /dev/null 2>&1 &")
    assert open_.wait(60) == 1
    assert f"{serving.host.name}: chat: connection lost" in open_.text


def test_a_prompt_is_answered_and_its_pace_told(serving: Fleet) -> None:
    began = time.monotonic()
    answer = serving.rigup("chat", "chat", "Hello", "--max-tokens", "5", "--json").json
    seconds = time.monotonic() - began
    assert answer["text"] == "word0 word1 word2 word3 word4 "
    assert (answer["host"], answer["service"], answer["model"]) == (serving.host.name, "chat", "smollm2-135m-instruct")
    # the stand-in sends ten a second, on a busy machine less, and all of them while the run lasted
    assert 5 / seconds < answer["tokens_per_second"] < 15
    told = serving.rigup("chat", "chat", "Hello", "--max-tokens", "3")
    assert told.stdout.read_text() == "word0 word1 word2 \n"
    assert "about 3 tokens, " in told.stderr.read_text()
    long = serving.start("chat", "chat", "Hello", "--max-tokens", "600")
    long.wait_to_say("word3")
    long.interrupt()
    assert long.wait() == 130, long.text
    assert "cancelled" in long.text


def test_a_key_is_told_where_it_is_asked_for_alone_and_replaced(serving: Fleet) -> None:
    serving.describe(listen="0.0.0.0")
    serving.apply()
    key = serving.host.tell("cat /etc/rigup/services/chat/api-key")
    said = serving.rigup("chat", "chat", "Hello", "--max-tokens", "2")
    assert said.stdout.read_text() == "word0 word1 \n"
    assert key not in said.text
    open_ = serving.start("tunnel", "chat")
    open_.wait_to_say("Ctrl-C")
    assert "rigup key show chat" in open_.text
    url = open_.text.partition("smollm2-135m-instruct): ")[2].split()[0]
    assert (asked(url), asked(url, key)) == ("401", ANSWER)
    assert key not in open_.text

    assert serving.rigup("key", "show", "chat").stdout.read_text() == f"{key}\n"
    rotated = serving.rigup("key", "rotate", "chat", "--yes", "--json")
    assert rotated.json["hosts"][0]["state"] == "changed"
    (shown,) = serving.rigup("key", "show", "--json").json["keys"]
    assert (shown["host"], shown["service"]) == (serving.host.name, "chat")
    assert (asked(url, key), asked(url, shown["key"])) == ("401", ANSWER)
    assert shown["key"] not in rotated.text
    assert serving.apply().json["hosts"][0]["changes"] == []


def health(fleet: Fleet, expect: int = 0) -> tuple[str, str, str]:
    """Health, unit and drift of the service as `rigup status` has them."""
    (row,) = fleet.rigup("status", "--json", expect=expect).json["services"]
    return row["health"], row["unit"], row["drift"]


def test_a_stop_that_was_asked_for_holds_until_the_next_apply(serving: Fleet) -> None:
    host = serving.host
    said = serving.rigup("stop", "chat")
    assert said.stdout.read_text() == f"{host.name} chat: stopped\n"
    assert health(serving) == ("stopped", "inactive", "none")
    assert f"{host.name} chat" not in serving.rigup("stop", "chat").stdout.read_text(), "it is stopped again"
    assert not host.says("systemctl start rigup-chat.service && sleep 1 && systemctl is-active rigup-chat.service")
    asked = serving.rigup("chat", "chat", "Hello", expect=1)
    assert f"{host.name}: chat is stopped" in asked.text

    started = serving.rigup("start", "chat", "--json").json["hosts"][0]
    assert (started["state"], started["answers"][0]["text"]) == ("changed", ANSWER)
    assert health(serving) == ("answers", "active", "none")
    since = host.show("ActiveEnterTimestampMonotonic")
    serving.rigup("restart", "chat")
    assert host.show("ActiveEnterTimestampMonotonic") != since
    assert host.answers()

    serving.rigup("stop", "--yes")
    applied = serving.apply().json["hosts"][0]
    assert applied["changes"] == [{"role": "service", "step": "release of chat"}]
    assert host.answers()
    assert serving.apply().json["hosts"][0]["changes"] == []
    verbs = [record["verb"] for record in serving.rigup("log", host.name, "--json").json["applies"]]
    assert verbs[-5:] == ["start", "restart", "stop", "apply", "apply"]


def test_a_disabled_service_stays_stopped_until_it_is_enabled(serving: Fleet) -> None:
    serving.describe(enabled=False)
    first = serving.apply().json["hosts"][0]
    assert first["changes"] == [{"role": "stop", "step": "stop chat"}]
    second = serving.apply().json["hosts"][0]
    assert (second["state"], second["changes"]) == ("unchanged", [])
    assert health(serving) == ("stopped", "inactive", "none")
    assert serving.rigup("diff", "--json").json["hosts"][0]["drift"] == []
    refused = serving.rigup("start", "chat", expect=1)
    assert re.search(r"chat: .*\benabled = False\b", refused.text)
    serving.describe()
    serving.apply()
    assert serving.host.answers()


def test_a_command_on_hosts(serving: Fleet) -> None:
    name = serving.host.name
    assert serving.rigup("exec", "--", "id", "-un").stdout.read_text() == "root\n"
    failing = serving.rigup("exec", "--json", "echo a; echo b >&2; exit 3", expect=1).json["hosts"]
    (error,) = failing[0].pop("errors")
    assert error["message"].startswith(f"{name}: ") and error["message"].endswith(" 3")
    of_command = {"status": 3, "stdout": "a\n", "stderr": "b\n", "truncated": False}
    assert failing == [{"host": name, "state": "failed", **of_command}]
    recorded = serving.rigup("log", name, "--json").json["applies"][-1]
    assert (recorded["verb"], recorded["result"]) == ("exec", "failed")
    assert recorded["changes"] == ["exec: echo a; echo b >&2; exit 3"]
    long = serving.start("exec", "echo begun; sleep 100; echo over")
    long.wait_to_say("begun")
    long.interrupt()
    assert long.wait() == 130, long.text


def test_two_hosts_are_compared(serving: Fleet) -> None:
    name = serving.host.name
    serving.rigup("stop", "chat")
    serving.describe(hosts=2)
    second = serving.hosts[1].name
    compared = serving.rigup("compare", name, second, "--json", expect=1).json
    found = {(each["part"], each["what"]): each["values"] for each in compared["differences"]}
    assert found["services", "chat: state"][name] == "stopped" != found["services", "chat: state"][second]
    assert ("hardware", "architecture") not in found
    said = serving.rigup("compare", name, second, expect=1).stdout.read_text()
    assert "chat: state" in said and "stopped" in said
    verbs = [record["verb"] for record in serving.rigup("log", name, "--json").json["applies"]]
    assert verbs[-2:] == ["compare", "compare"]


def test_uninstalling_leaves_nothing_but_weights_unless_they_are_to_go(serving: Fleet) -> None:
    host = serving.host
    said = serving.rigup("uninstall", host.name, "--yes").stdout.read_text()
    assert "goes: service chat" in said and "stays: weights, " in said
    folders = "/opt/rigup /etc/rigup /var/cache/rigup /var/log/rigup /run/rigup"
    units = "/etc/systemd/system/rigup-* /etc/systemd/system/*.wants/rigup-*"
    assert host.tell(f"ls -d {folders} {units} 2>/dev/null || true") == ""
    assert host.tell("ls -A /var/lib/rigup") == "weights"
    assert host.tell("systemctl list-units --plain --no-legend 'rigup-*'") == ""

    gone = serving.rigup("uninstall", host.name, "--weights", "--yes", "--json").json
    assert (gone["hosts"][0]["state"], gone["weights"]) == ("changed", True)
    assert not host.says("test -e /var/lib/rigup || getent passwd rigup")
    nothing = serving.rigup("uninstall", host.name, "--weights").stdout.read_text()
    assert nothing.startswith(f"{host.name}: ") and "goes: " not in nothing

    serving.apply(seconds=600)
    assert host.answers()
