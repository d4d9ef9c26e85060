"""vLLM over two booted machines for real: one service, tensor parallel over both, on their CPUs.

Only the checkpoint is made up, and the hub a stand-in. The packages come from the wheelhouse that is kept in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.operations.service.health import GREETING_TOKENS
from tests.lab.fleet import wait_for
from tests.slow.vllm_fleet import VllmFleet, made_vllm_fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.alone,
    pytest.mark.rare,
    pytest.mark.rests_on("vLLM's package", "node groups", "environments"),
]
SECONDS = 1800


@pytest.fixture
def fleet(labs_can_run: None, tmp_path: Path) -> Iterator[VllmFleet]:
    """Two bare machines that serve together, a hub with the tiny checkpoint, and a lock that pins it and vLLM."""
    with made_vllm_fleet("span", tmp_path, hosts=2) as fleet:
        describe(fleet, VLLM_CPU_KVCACHE_SPACE="1")
        fleet.lock()
        yield fleet


def describe(fleet: VllmFleet, **environment: str) -> None:
    """Both machines are one service whose processes have these variables."""
    fleet.describe(2, rig={"hosts_per_service": 2}, tensor_parallel=2, start_timeout=600, environment=environment)


def answers(fleet: VllmFleet) -> bool:
    asked = '{"model": "tiny-minimax-m2", "prompt": "Hello", "max_tokens": 2}'
    curl = f"curl -s -m 60 -H 'Content-Type: application/json' -d '{asked}' http://127.0.0.1:8000/v1/completions"
    return '"choices"' in fleet.host.machine.ssh(curl).stdout


def test_two_machines_are_one_vllm(fleet: VllmFleet) -> None:
    head, other = fleet.hosts
    began = time.monotonic()
    first = fleet.apply(seconds=SECONDS)
    (answer,) = first.json["hosts"][0]["answers"]
    print(
        f"first apply: {time.monotonic() - began:.0f} s, {answer['tokens']} tokens at {answer['tokens_per_second']}/s"
    )
    assert answer["tokens"] == GREETING_TOKENS
    assert "world_size=2 rank=1" in other.tell("journalctl --no-pager -o cat -u rigup-chat")
    again = fleet.apply().json["hosts"]
    assert [(host["state"], host["changes"]) for host in again] == [("unchanged", []), ("unchanged", [])]

    other.machine.power_off()
    rows = fleet.rigup("status", "--json", expect=1).json["services"]
    assert [row["health"] for row in rows] == [f"no answer: waiting for {other.name}", "unreachable"]
    other.machine.power_on()
    began = time.monotonic()
    wait_for(lambda: answers(fleet), "the pair to serve again", SECONDS)
    print(f"the other's power lost and back: serving {time.monotonic() - began:.0f} s after it was switched on")
    assert [host["state"] for host in fleet.apply().json["hosts"]] == ["unchanged", "unchanged"]

    describe(fleet, GLOO_SOCKET_IFNAME="nosuch0")
    bad = fleet.apply(expect=1, seconds=SECONDS)
    said = [error["message"] for host in bad.json["hosts"] for error in host["errors"]]
    assert all(f" release 1 on {head.name} and 1 on {other.name}, " in one for one in said)
    assert answers(fleet)
