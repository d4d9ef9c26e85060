"""What differs between two hosts, and what does not count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rigup.facts.gpus import Nvidia, ProbedGpu
from rigup.facts.host import UnitState
from rigup.facts.probe import Probe
from rigup.run.whole_hosts.comparison import compare

MANIFEST: dict[str, Any] = {
    "build": "vllm-a",
    "command": ["vllm", "serve", "--port", "8000", "--max-num-seqs", "8"],
    "environment": {"A": "1"},
    "gpus": [[0, "GPU-1"]],
}
PROBE = Probe(
    os_name="Debian 12",
    cpus=8,
    gpus=(ProbedGpu("RTX 3090", memory_total_mib=24576),) * 2,
    nvidia=Nvidia(loaded="580.95.05"),
    builds=("vllm-a",),
    current={"chat": "4"},
    releases={"chat": MANIFEST},
    units={"chat": UnitState("active")},
)
DATA = {"rig": {"gpus": "2x RTX 3090"}, "ssh_hostname": "10.0.0.1", "_sudo": True}


def found(second: Probe, data: dict[str, Any] | None = None) -> list[tuple[str, str, str, str]]:
    differences = compare((PROBE, second), (DATA, DATA if data is None else data))
    return [(each.part, each.what, each.first, each.second) for each in differences]


def test_hosts_that_are_alike() -> None:
    other = {**MANIFEST, "gpus": [[0, "GPU-2"]]}
    alike = replace(PROBE, hostname="other", current={"chat": "7"}, releases={"chat": other})
    assert found(alike, {**DATA, "ssh_hostname": "10.0.0.2", "_sudo": False}) == []


def test_what_differs_part_by_part() -> None:
    command = ["vllm", "serve", "--port", "8000", "--max-num-seqs", "16", "--enable-x"]
    other = replace(
        PROBE,
        cpus=16,
        gpus=PROBE.gpus[:1],
        nvidia=Nvidia(loaded="580.82.07", packages={"nvidia-driver": "580.82.07-1"}),
        builds=("vllm-b",),
        releases={"chat": {**MANIFEST, "command": command, "environment": {"A": "2"}}},
        units={"chat": UnitState("inactive")},
        stopped=("chat",),
    )
    assert found(other, {"rig": {"gpus": "1x RTX 3090", "power_limit_w": 280}}) == [
        ("hardware", "GPUs", "2x RTX 3090 24576 MiB", "1x RTX 3090 24576 MiB"),
        ("hardware", "PCIe", "2x ?.0 x?", "1x ?.0 x?"),
        ("hardware", "processors", "8", "16"),
        ("driver", "driver", "580.95.05", "580.82.07"),
        ("driver", "nvidia-driver", "", "580.82.07-1"),
        ("files", "build vllm-a", "there", ""),
        ("files", "build vllm-b", "", "there"),
        ("services", "chat: state", "active", "stopped"),
        ("services", "chat: --max-num-seqs", "8", "16"),
        ("services", "chat: environment.A", "1", "2"),
        ("services", "chat: --enable-x", "", "given"),
        ("settings", "rig.gpus", "2x RTX 3090", "1x RTX 3090"),
        ("settings", "rig.power_limit_w", "", "280"),
    ]


def test_a_service_that_one_host_does_not_have_and_one_that_cannot_be_read() -> None:
    none = replace(PROBE, current={}, releases={}, units={})
    assert {(what, second) for part, what, _, second in found(none) if part == "services"} >= {("chat: state", "")}
    damaged = replace(PROBE, releases={}, damaged={"chat": "not JSON"})
    assert ("services", "chat: release", "", "damaged") in found(damaged)
