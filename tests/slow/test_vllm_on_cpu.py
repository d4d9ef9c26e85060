"""vLLM for real: locked, planned and applied to a booted machine, where it serves a tiny MiniMax M2 on the CPU.

Only the checkpoint is made up, and the hub a stand-in. The packages come from the index that pip is set up for here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from rigup.operations.service.health import GREETING_TOKENS
from tests.lab.fleet import Run, wait_for
from tests.lab.test_draining import INSTALL
from tests.slow.vllm_fleet import VllmFleet, made_vllm_fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.rests_on(
        "vLLM's package", "environments", "src/rigup/artifacts.py", "src/rigup/sources/safetensors_files.py"
    ),
]
SECONDS = 900


MODEL = "tiny-minimax-m2"
TOKENS = 1500
# Reads a stream, says when it has begun, and prints when it ended, how many tokens there were, why, and the last line.
READER = """
import http.client, json, sys, time
body = {"model": sys.argv[1], "messages": [{"role": "user", "content": "Hello"}], "max_tokens": int(sys.argv[2])}
body.update(ignore_eos=True, stream=True, stream_options={"include_usage": True})
connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=600)
connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
tokens, why, last = 0, None, b""
reply = connection.getresponse()
open("/run/begun", "w").close() if reply.status == 200 else sys.exit(f"status {reply.status}")
for line in reply:
    if line.startswith(b"data: {"):
        event = json.loads(line[6:])
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        why = next((choice["finish_reason"] for choice in event["choices"] if choice["finish_reason"]), why)
    last = line.strip() or last
print(time.time(), tokens, why, last.decode())
"""


@pytest.fixture(scope="module")
def applied(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VllmFleet, Run]]:
    """One machine without GPUs that serves the tiny checkpoint with vLLM, and the first apply."""
    with made_vllm_fleet("vllm", tmp_path_factory.mktemp("vllm"), hosts=1) as fleet:
        fleet.describe()
        began = time.monotonic()
        fleet.lock()
        locked = time.monotonic()
        first = fleet.apply(seconds=SECONDS)
        print(f"lock and wheelhouse {locked - began:.0f} s, apply {time.monotonic() - locked:.0f} s")
        yield fleet, first


def test_vllm_serves_minimax_m2_on_a_cpu(applied: tuple[VllmFleet, Run]) -> None:
    fleet, first = applied
    (result,) = first.json["hosts"]
    (answer,) = result["answers"]
    print(f"{answer['tokens']} tokens at {answer['tokens_per_second']} tokens/s: {answer['text']}")
    assert answer["tokens"] == GREETING_TOKENS and answer["tokens_per_second"] > 0

    host = fleet.host
    (build,) = host.tell("ls -A /opt/rigup/builds").split()
    assert build.startswith("vllm-0.32.0-")
    assert float(host.tell("systemd-analyze security --no-pager rigup-chat | tail -n1").split(":")[1].split()[0]) <= 3.0
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    curl = f"curl -s -H 'Content-Type: application/json' -d '{json.dumps(asked)}'"
    message = json.loads(host.tell(f"{curl} http://127.0.0.1:8000/v1/chat/completions"))["choices"][0]["message"]
    # the template opens <think>, and the tiny model never closes it: all of it is the parser's reasoning
    assert message["content"] is None and message["reasoning"]
    written = "find /opt/rigup/builds -newer /etc/rigup/services/chat/current -type f | head -n 3"
    assert host.tell(written) == ""

    second = fleet.apply().json["hosts"][0]
    assert (second["state"], second["changes"]) == ("unchanged", [])
    (row,) = fleet.rigup("status", "--json").json["services"]
    assert (row["health"], row["drift"], row["build"]) == ("answers", "none", build)


def test_a_stream_ends_whole_when_its_unit_is_restarted(applied: tuple[VllmFleet, Run]) -> None:
    fleet, _ = applied
    host = fleet.host
    host.tell(INSTALL)
    host.machine.ssh("cat > /run/reader.py; rm -f /run/begun", input=READER, check=True)
    before = host.show("InvocationID")
    reading = f"python3 /run/reader.py {MODEL} {TOKENS}"
    # in one command: each SSH connection takes a part of the stream
    start = f"systemd-run --quiet --collect --unit=reader --property=StandardOutput=truncate:/run/read {reading}"
    restart = "until test -e /run/begun; do sleep 0.01; done; date +%s.%N; systemctl restart rigup-chat"
    stopping = host.machine.ssh(f"{start}; {restart}", timeout=SECONDS, check=True).stdout
    assert host.show("InvocationID") != before
    wait_for(lambda: not host.says("systemctl is-active --quiet reader"), "the reader's end")
    ended, came = host.tell("cat /run/read").split(maxsplit=1)
    assert float(ended) > float(stopping), "the stop came in its middle"
    assert came == f"{TOKENS} length data: [DONE]"
    wait_for(lambda: host.says("curl -sf -m 5 127.0.0.1:8000/health"), "vLLM to answer again", SECONDS)
