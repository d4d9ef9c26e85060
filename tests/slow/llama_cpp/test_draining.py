"""The pinned llama.cpp on a booted machine: its streams end whole when an apply and a rollback stop it.

The build comes from this user's cache or is compiled.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rigup.lab import demo_model
from rigup.project.inventory import toolkit_root
from tests.lab.fleet import UNIT, Fleet, Host, wait_for
from tests.lab.fleet_fixtures import made_fleet
from tests.lab.test_draining import INSTALL

pytestmark = [pytest.mark.slow, pytest.mark.lab]

COLD_SECONDS = 2400
STREAMS, TOKENS = 2, 150
BUSY = "ss -Htn state established sport = :8000 | wc -l"
# Counts the pieces of an answer, looks for its end, and asks again on the same connection.
READER = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=120)
def ask(tokens):
    said = {"role": "user", "content": "Tell a long story."}
    body = {"stream": True, "max_tokens": tokens, "ignore_eos": True, "messages": [said]}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    lines = [line[6:].strip() for line in connection.getresponse() if line.startswith(b"data: ")]
    deltas = [json.loads(line)["choices"] for line in lines if line != b"[DONE]"]
    return sum("content" in choices[0]["delta"] for choices in deltas if choices), lines[-1].decode()
print(json.dumps(ask(int(sys.argv[1]))))
try:
    print(json.dumps(ask(2)))
except OSError as error:
    print(json.dumps(type(error).__name__))
"""


@pytest.fixture(scope="module")
def host(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Host]]:
    """A fleet of one machine, with nftables, that serves a small model to two at once."""
    root = tmp_path_factory.mktemp("fleet")
    shutil.copy(toolkit_root() / "rigup.lock", root / "rigup.lock")
    with made_fleet(Fleet, "drain", root, demo_model.provide(), hosts=1) as fleet:
        fleet.describe(context=2048, concurrency=STREAMS)
        fleet.apply(seconds=COLD_SECONDS)
        fleet.host.tell(INSTALL)
        fleet.host.machine.ssh("cat > /run/reader.py", input=READER, check=True)
        yield fleet, fleet.host


def test_streams_end_whole_when_an_apply_and_a_rollback_stop_the_engine(host: tuple[Fleet, Host]) -> None:
    fleet, machine = host
    peace = machine.tell("python3 /run/reader.py 3").splitlines()
    assert [json.loads(line)[1] for line in peace] == ["[DONE]", "[DONE]"], "a second request is answered in peace"
    fleet.describe(context=1024, concurrency=STREAMS)
    for words in (("apply", "--yes"), ("rollback", "--yes")):
        before = machine.show("InvocationID")
        with ThreadPoolExecutor(STREAMS) as pool:
            read = [pool.submit(lambda: machine.tell(f"python3 /run/reader.py {TOKENS}")) for _ in range(STREAMS)]
            wait_for(lambda: machine.tell(BUSY) == str(STREAMS), "the answers to begin")
            fleet.rigup(*words, seconds=600)
            for answer in read:
                (pieces, end), second = map(json.loads, answer.result().splitlines())
                assert (pieces, end) == (TOKENS, "[DONE]")
                assert second == "ConnectionResetError"
        assert machine.show("InvocationID") != before
        assert f"drain: connections left: {STREAMS}" in machine.tell(f"journalctl -o cat -u {UNIT}")
