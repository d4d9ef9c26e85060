"""vLLM over two booted machines for real: one service, tensor parallel over both, on their CPUs.

Only the checkpoint is made up, and the hub a stand-in. The packages come from the wheelhouse that is kept in the cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.cache import cache_folder
from rigup.errors import MissingTool
from rigup.lab import prerequisites
from rigup.lab.hub import Hub
from rigup.lab.lab import Lab
from tests import tiny_minimax_m2 as tiny
from tests.lab.fleet import Fleet, wait_for
from tests.slow.test_vllm_on_cpu import _fill_wheelhouse, _house

pytestmark = [pytest.mark.slow, pytest.mark.lab]
DISK = "6g"
SECONDS = 1800
SERVICE = {
    "model": tiny.MODEL,
    "engine": "vllm",
    "version": "0.32.0",
    "context": 2048,
    "tensor_parallel": 2,
    "reasoning": True,
    "start_timeout": 600,
    "environment": {"VLLM_CPU_KVCACHE_SPACE": "1"},
}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Two bare machines that serve together, and a hub with the tiny checkpoint."""
    try:
        prerequisites.check()
    except MissingTool as missing:
        if os.environ.get("RIGUP_REQUIRE_LAB") == "1":
            raise
        pytest.skip(missing.message)
    tiny.describe(tmp_path)
    tiny.write(tmp_path / "served" / tiny.REPO)
    lab = Lab.up(f"span{os.getpid()}", hosts=2, disk=DISK)
    try:
        hub = Hub.start(tmp_path / "served", lab=lab.record.name)
        outside = Hub.start(tmp_path / "served", tmp_path / "hub")
        fleet = Fleet(lab, hub, tmp_path, cache_folder().parent)
        (tmp_path / "inventories").mkdir()
        (tmp_path / "group_data").mkdir()
        entries = [host.machine.inventory for host in fleet.hosts]
        (tmp_path / "inventories/rehearsal.py").write_text(f"boxes = {entries!r}\n")
        describe(fleet, outside.url)
        fleet.rigup("lock")
        describe(fleet, hub.url)
        _fill_wheelhouse(tmp_path / "rigup.lock")
        yield fleet
        for run in fleet.runs:
            if run.process.poll() is None:
                run.kill()
        outside.stop()
    finally:
        lab.down()


def describe(fleet: Fleet, hub: str, **service: object) -> None:
    memory = int(fleet.host.tell("sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo")) / 2**20
    (fleet.root / "group_data/boxes.py").write_text(
        f'rig = {{"gpus": [], "host_memory_gib": {memory:.1f}, "hosts_per_service": 2}}\n'
        f'services = {{"chat": {SERVICE | service!r}}}\nwheelhouse = "{_house()}"\nhub = {hub!r}\n'
    )


def answers(fleet: Fleet) -> bool:
    asked = '{"model": "tiny-minimax-m2", "prompt": "Hello", "max_tokens": 2}'
    curl = f"curl -s -m 60 -H 'Content-Type: application/json' -d '{asked}' http://127.0.0.1:8000/v1/completions"
    return '"choices"' in fleet.host.machine.ssh(curl).stdout


def test_two_machines_are_one_vllm(fleet: Fleet) -> None:
    head, other = fleet.hosts
    began = time.monotonic()
    first = fleet.start("apply", "--yes", "--json")
    assert first.wait(SECONDS) == 0, first.text
    (answer,) = first.json["hosts"][0]["answers"]
    print(
        f"first apply: {time.monotonic() - began:.0f} s, {answer['tokens']} tokens at {answer['tokens_per_second']}/s"
    )
    assert answer["tokens"] == 48
    assert "world_size=2 rank=1" in other.tell("journalctl --no-pager -o cat -u rigup-chat")
    again = fleet.apply().json["hosts"]
    assert [(host["state"], host["changes"]) for host in again] == [("unchanged", []), ("unchanged", [])]

    other.machine.power_off()
    rows = fleet.rigup("status", "--json", expect=1).json["services"]
    assert [row["health"] for row in rows] == [f"no answer: waits for {other.name}", "unreachable"]
    other.machine.power_on()
    began = time.monotonic()
    wait_for(lambda: answers(fleet), "the pair to serve again", SECONDS)
    print(f"the other's power lost and back: serving {time.monotonic() - began:.0f} s after it was switched on")
    assert [host["state"] for host in fleet.apply().json["hosts"]] == ["unchanged", "unchanged"]

    describe(fleet, fleet.hub.url, environment={"GLOO_SOCKET_IFNAME": "nosuch0"})
    bad = fleet.start("apply", "--yes", "--json")
    assert bad.wait(SECONDS) == 1, bad.text
    said = [error["message"] for host in bad.json["hosts"] for error in host["errors"]]
    assert all(one.endswith(f"release 1 on {head.name} and 1 on {other.name} was put back and answers") for one in said)
    assert answers(fleet)
