"""Two services on two pairs of cards: each on its own by UUID, also after a boot that gives the cards other numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rigup.lab.gpus.simulated import SimulatedGpus
from tests.lab.gpu_fleet import OLD, GpuFleet, made_gpu_fleet, steps

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("the run")]

SMALL = {"model": "SmolLM2-135M-Instruct", "context": 8192}
PAIRS = {"left": {**SMALL, "gpus": [0, 1]}, "right": {**SMALL, "gpus": [2, 3], "port": 8001}}
RUNS = "InvocationID,ActiveEnterTimestampMonotonic,MainPID"


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards, no driver yet, and two services that have two cards each."""
    with made_gpu_fleet(tmp_path_factory, "pairs") as fleet:
        fleet.describe_gpus(OLD, {"power_limit_w": 300}, services=PAIRS)
        fleet.apply("--reboot")
        yield fleet


def visible(fleet: GpuFleet, service: str) -> list[str]:
    """The cards that a running service was given."""
    words = f"tr '\\0' '\\n' </proc/$(systemctl show rigup-{service} -P MainPID)/environ"
    return fleet.host.tell(f"{words} | sed -n 's/^CUDA_VISIBLE_DEVICES=//p'").split(",")


def uuids(fleet: GpuFleet) -> list[str]:
    """The cards in NVML's order."""
    return fleet.host.tell("nvidia-smi -L | sed 's/.*UUID: \\(.*\\))/\\1/'").splitlines()


def rows(fleet: GpuFleet, expect: int = 0) -> dict[str, dict[str, Any]]:
    return {row["service"]: row for row in fleet.rigup("status", "--json", expect=expect).json["services"]}


def test_cards_by_uuid_from_the_first_apply_on_which_brought_the_driver(fleet: GpuFleet) -> None:
    there = uuids(fleet)
    assert (visible(fleet, "left"), visible(fleet, "right")) == (there[:2], there[2:])
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    assert fleet.host.answers(8000) and fleet.host.answers(8001)


def test_a_boot_that_renumbers_the_cards_changes_nothing(fleet: GpuFleet) -> None:
    before = uuids(fleet)
    given = {name: visible(fleet, name) for name in PAIRS}
    pairs = zip((0, 1, 2, 3), (3, 2, 1, 0), strict=True)
    edits = "".join(f"s/^gpu{index}.uuid .*/gpu{index}.uuid {before[other]}/;" for index, other in pairs)
    fleet.host.tell(f"sed -i '{edits}' /etc/lab-gpus/rig")
    fleet.host.machine.reboot()
    assert uuids(fleet) == before[::-1]
    assert fleet.rigup("diff", "--json").json["hosts"][0]["drift"] == []
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    assert {name: visible(fleet, name) for name in PAIRS} == given


def test_what_is_known_of_the_cards_is_at_a_glance(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    gpus.set(0, temperature=77, memory_used_mib=2048)
    found = rows(fleet)
    # after the boot above the first card is the last of the right pair
    assert (found["right"]["gpu_temperature_c"], found["right"]["gpu_memory_used_mib"]) == (77, 2048)
    assert found["left"]["gpu_temperature_c"] < 40
    assert found["left"]["gpu_memory_mib"] == 2 * 24576


def test_a_limit_that_was_moved_and_a_card_that_fell_off_are_drift(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    fleet.host.tell("nvidia-smi -i 1 -pl 250")
    found = fleet.rigup("diff", "--json", expect=1)
    (drift,) = found.json["hosts"][0]["drift"]
    assert (drift["what"], drift["message"]) == ("power", "GPU 1 has 250 W; declared: 300 W")
    assert steps(found, "power") == ["power limit 300 W"]
    fleet.apply()

    gpus.lose(3)
    (host,) = fleet.rigup("diff", "--json", expect=1).json["hosts"]
    assert host["state"] == "differs"
    assert ["GPU is lost" in drift["message"] for drift in host["drift"] if drift["what"] == "gpus"] == [True]
    gpus.restore(3)
    fleet.rigup("diff")
