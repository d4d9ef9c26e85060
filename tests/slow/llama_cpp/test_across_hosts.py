"""llama.cpp over two booted machines for real: the pinned build with its RPC server, and a model split between them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.lab import demo_model
from tests.lab.fleet import Fleet, wait_for
from tests.lab.fleet_fixtures import made_fleet

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("llama.cpp's package", "node groups")]
COLD_SECONDS = 3600
LAYERS = 30


@pytest.fixture
def fleet(labs_can_run: None, tmp_path: Path) -> Iterator[Fleet]:
    """Two bare machines that serve together, a hub with the demo's model, the toolkit's lock, this user's builds."""
    with made_fleet(Fleet, "rpc", tmp_path, demo_model.provide(), hosts=2) as fleet:
        fleet.describe(2, rig={"hosts_per_service": 2}, quick_build=True)
        yield fleet


def test_two_machines_hold_one_model_and_answer_a_chat(fleet: Fleet) -> None:
    head, other = fleet.hosts
    began = time.monotonic()
    first = fleet.apply(seconds=COLD_SECONDS)
    of_head, of_other = first.json["hosts"]
    (answer,) = of_head["answers"]
    print(f"first apply: {time.monotonic() - began:.0f} s, {answer['tokens_per_second']} tokens/s: {answer['text']}")
    assert "Paris" in answer["text"]
    assert of_other["state"] == "changed" and not of_other["answers"]

    # as many layers as the plan says lie on the other machine, which has no file of the model
    command = json.loads(head.tell("cat /etc/rigup/services/chat/current/release.json"))["command"]
    layers = int(command[command.index("--n-gpu-layers") + 1])
    assert 0 < layers < LAYERS
    assert not other.says("test -e /var/lib/rigup/weights/*/*")
    kib = int(other.tell("sed -n 's/^RssAnon:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$(pgrep -x ggml-rpc-server)/status"))
    print(f"{layers} of {LAYERS} layers on the other machine, whose RPC server has {kib} KiB")
    assert kib > demo_model.MODEL.size / 1024 * layers / LAYERS / 2
    assert other.tell("journalctl -o cat -u rigup-chat | tail -n 1") == "Accepted client connection"

    second = fleet.apply().json["hosts"]
    assert [(host["state"], host["changes"]) for host in second] == [("unchanged", []), ("unchanged", [])]
    rows = fleet.rigup("status", "--json").json["services"]
    assert [(row["health"], row["drift"]) for row in rows] == [("answers", "none"), ("joined", "none")]

    lost = time.monotonic()
    other.tell("pkill -9 ggml-rpc-server")
    wait_for(lambda: not _answers(fleet), "the head to notice", 30)
    wait_for(lambda: _answers(fleet), "the pair to serve again", 120)
    print(f"killed RPC server: serving again after {time.monotonic() - lost:.0f} s")
    lost = time.monotonic()
    other.machine.reboot()
    wait_for(lambda: _answers(fleet), "the pair to serve again", 180)
    print(f"rebooted machine: serving again after {time.monotonic() - lost:.0f} s")
    assert [host["state"] for host in fleet.apply().json["hosts"]] == ["unchanged", "unchanged"]


def _answers(fleet: Fleet) -> bool:
    asked = '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}'
    curl = f"curl -s -m 20 -H 'Content-Type: application/json' -d '{asked}' http://127.0.0.1:8000/v1/chat/completions"
    return '"choices"' in fleet.host.machine.ssh(curl).stdout
