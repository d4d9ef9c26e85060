"""vLLM for real: locked, planned and applied to a booted machine, where it serves a tiny MiniMax M2 on the CPU.

Only the checkpoint is made up, and the hub a stand-in. The packages come from the index that pip is set up for here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.operations.service.health import GREETING_TOKENS
from tests.slow.vllm_fleet import VllmFleet, made_vllm_fleet

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("vLLM on machines")]
SECONDS = 900


@pytest.fixture
def fleet(labs_can_run: None, tmp_path: Path) -> Iterator[VllmFleet]:
    """One bare machine without GPUs, a hub with the tiny checkpoint, and a fleet that wants vLLM on it."""
    with made_vllm_fleet("vllm", tmp_path, hosts=1) as fleet:
        fleet.describe()
        yield fleet


def test_vllm_serves_minimax_m2_on_a_cpu(fleet: VllmFleet) -> None:
    began = time.monotonic()
    fleet.lock()
    locked = time.monotonic()
    first = fleet.apply(seconds=SECONDS)
    (result,) = first.json["hosts"]
    (answer,) = result["answers"]
    print(
        f"lock and wheelhouse {locked - began:.0f} s, apply {time.monotonic() - locked:.0f} s, "
        f"{answer['tokens']} tokens at {answer['tokens_per_second']} tokens/s: {answer['text']}"
    )
    assert answer["tokens"] == GREETING_TOKENS and answer["tokens_per_second"] > 0

    host = fleet.host
    (build,) = host.tell("ls -A /opt/rigup/builds").split()
    assert build.startswith("vllm-0.32.0-")
    assert float(host.tell("systemd-analyze security --no-pager rigup-chat | tail -n1").split(":")[1].split()[0]) <= 3.0
    asked = {"model": "tiny-minimax-m2", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
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
