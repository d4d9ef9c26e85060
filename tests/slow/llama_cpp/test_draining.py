"""The pinned llama.cpp on a booted machine: answers end whole when an apply and a rollback stop it.

The build comes from this user's cache or is compiled.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rigup.lab import demo_model
from rigup.project.inventory import toolkit_root
from tests.lab.fleet import UNIT, Fleet, Host, wait_for
from tests.lab.fleet_fixtures import made_fleet
from tests.lab.test_draining import INSTALL

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("llama.cpp's package")]

COLD_SECONDS = 2400
BUSY_SECONDS = 600
STREAMS, TOKENS = 2, 600
# One thread: an answer must take longer than an apply takes to come to the stop, on a fast machine, too.
SETTINGS: dict[str, Any] = {
    "quick_build": True,
    "concurrency": STREAMS,
    "drain_timeout": BUSY_SECONDS,
    "flags": {"--threads": 1},
}
BUSY = "ss -Htn state established sport = :8000 | wc -l"
# "read N": counts the pieces of a streamed answer of N tokens and looks for its end, then asks anew. "loop": asks short
# questions on one connection until one fails. Both say why the last question failed.
CLIENT = """
import http.client, json, sys
said = [{"role": "user", "content": "Tell a long story."}]
connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=120)
def ask(**how):
    body = json.dumps({"ignore_eos": True, "messages": said, **how})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    return connection.getresponse()
def read(tokens):
    lines = [line[6:].strip() for line in ask(stream=True, max_tokens=tokens) if line.startswith(b"data: ")]
    choices = [json.loads(line)["choices"] for line in lines if line != b"[DONE]"]
    return sum(choice[0]["delta"].get("content") is not None for choice in choices if choice), lines[-1].decode()
def loop():
    tokens = json.loads(ask(max_tokens=5).read())["usage"]["completion_tokens"]
    assert tokens == 5, tokens
try:
    if sys.argv[1] == "loop":
        while True:
            loop()
    print(*read(int(sys.argv[2])), flush=True)
    connection.close()
    print(*read(3), flush=True)
except OSError as error:
    print(type(error).__name__)
"""
PROGRAM = "/run/client.py"


@pytest.fixture(scope="module")
def host(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Host]]:
    """A fleet of one machine, with nftables, that serves a small model to two at once."""
    root = tmp_path_factory.mktemp("fleet")
    shutil.copy(toolkit_root() / "rigup.lock", root / "rigup.lock")
    with made_fleet(Fleet, "drain", root, demo_model.provide(), hosts=1) as fleet:
        fleet.describe(context=2048, **SETTINGS)
        fleet.apply(seconds=COLD_SECONDS)
        fleet.host.tell(INSTALL)
        fleet.host.machine.ssh(f"cat > {PROGRAM}", input=CLIENT, check=True)
        yield fleet, fleet.host


def client(machine: Host, what: str) -> str:
    """What the client says, on however busy a machine."""
    return machine.machine.ssh(f"python3 {PROGRAM} {what}", timeout=2 * BUSY_SECONDS, check=True).stdout.strip()


def test_streams_end_whole_when_an_apply_and_a_rollback_stop_the_engine(host: tuple[Fleet, Host]) -> None:
    fleet, machine = host
    whole = f"{TOKENS} [DONE]"
    assert client(machine, f"read {TOKENS}").splitlines() == [whole, "3 [DONE]"], "in peace"
    fleet.describe(context=1024, **SETTINGS)
    for words in (("apply", "--yes"), ("rollback", "--yes")):
        before = machine.show("InvocationID")
        with ThreadPoolExecutor(STREAMS) as pool:
            read = pool.submit(lambda: client(machine, f"read {TOKENS}"))
            loop = pool.submit(lambda: client(machine, "loop"))
            wait_for(lambda: machine.tell(BUSY) == str(STREAMS), "the answers to begin")
            fleet.rigup(*words, seconds=2 * BUSY_SECONDS)
            assert read.result().splitlines() == [whole, "ConnectionRefusedError"]
            assert loop.result() in ("ConnectionResetError", "ConnectionRefusedError")
        assert machine.show("InvocationID") != before
        assert "drain: connections left: " in machine.tell(f"journalctl -o cat -u {UNIT}")
