"""`rigup verify` on a booted machine: NVML and CUDA are the lab's, and copy in the machine's memory."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.lab.gpus.simulated import SimulatedGpus
from tests.lab.gpu_fleet import GpuFleet

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def verified(fleet: GpuFleet, *options: str, expect: int = 0) -> dict[str, Any]:
    run = fleet.rigup("verify", fleet.host.name, "--json", *options, expect=expect)
    (host,) = run.json["hosts"]
    return dict(host)


def test_links_that_do_what_they_can(fleet: GpuFleet) -> None:
    fleet.apply("--reboot")
    boot = fleet.boots()
    for index in range(4):  # a busy machine sleeps longer than a copy lasts
        SimulatedGpus(fleet.host.machine).set(index, host_gbs=200)
    host = verified(fleet)
    gpu, pair = host["links"]["gpus"][0], host["links"]["pairs"][0]
    assert (gpu["generation"], gpu["loaded_generation"], gpu["most_generation"]) == (1, 4, 4)
    assert (gpu["loaded_width"], gpu["card_width"], gpu["nvlinks_active"]) == (16, 16, 0)
    assert gpu["host_gbs"] > 0
    assert (pair["pair"], pair["read"], pair["direct"], pair["correct"]) == ([0, 1], False, False, True)
    assert len(host["links"]["pairs"]) == 12
    assert host["state"] == "well"
    assert fleet.boots() == boot


def test_nothing_is_copied_if_so_asked(fleet: GpuFleet) -> None:
    host = verified(fleet, "--read-only")
    assert {link["unmeasured"] for link in (*host["links"]["gpus"], *host["links"]["pairs"])} == {"not asked for"}


def test_a_card_that_an_engine_fills_is_not_measured(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    gpus.set(1, memory_used_mib=24000)
    links = verified(fleet)["links"]
    gpus.unset(1, "memory_used_mib")
    assert [gpu["unmeasured"] for gpu in links["gpus"]] == ["", "only 576 MiB are free", "", ""]
    assert {tuple(pair["pair"]) for pair in links["pairs"] if pair["unmeasured"]} == {
        pair for other in (0, 2, 3) for pair in ((1, other), (other, 1))
    }


def test_what_is_wrong_is_said_with_a_hint_and_ends_with_1(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    gpus.set(0, pcie_width=8)
    gpus.set(2, pcie_generation_loaded=1)
    gpus.throttle(3)
    for index in range(4):
        gpus.set(index, p2p=0)
    gpus.set(1, corrupts=1)
    said = {one["message"] for one in verified(fleet, expect=1)["findings"] if one["problem"]}
    shown = fleet.rigup("verify", fleet.host.name, expect=1).text
    fleet.host.tell("rm -f /run/lab-gpus/gpu*")
    assert {
        "GPU 0: its link has 8 lanes of 16",
        "GPU 2: its link runs at PCIe generation 1 under load, card and slot can 4",
        "GPU 3: slowed down at 92 °C: hardware slowdown, hardware thermal",
        "GPU 1 to GPU 0: data arrive changed",
    } <= said
    assert any(message.startswith("the driver is patched: it gives GeForce cards P2P over PCIe") for message in said)
    assert "CHANGED" in shown and "hint: set the slot's lanes in the BIOS" in shown
