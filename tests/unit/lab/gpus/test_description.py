"""What a lab machine's simulated GPUs are described to be."""

from __future__ import annotations

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.errors import InputError
from rigup.lab.gpus.description import describe


def described(rig: str | dict[str, object], machine: str = "lab1") -> dict[str, str]:
    lines = describe(rig, machine).splitlines()
    assert lines[0].startswith("#")
    return dict(line.partition(" ")[::2] for line in lines[1:])


def test_every_gpu_of_the_catalogue_can_be_simulated() -> None:
    for gpu in load_catalogue().gpus:
        card = described(gpu.name)
        assert card["gpu0.name"] == gpu.name
        assert card["gpu0.compute_capability"] == gpu.compute_capability
        assert card.get("gpu0.memory_mib") == (None if gpu.memory_mib is None else str(gpu.memory_mib))
        assert "gpu0.architecture" in card


def test_cards_are_told_apart_and_stay_the_same() -> None:
    one, other = described("2x RTX 3090"), described("2x RTX 3090", "lab2")
    uuids = {machine[f"gpu{index}.uuid"] for machine in (one, other) for index in (0, 1)}
    assert len(uuids) == 4
    assert one == described("2x RTX 3090")
    buses = described("16x RTX PRO 6000 Blackwell Server Edition")
    assert len({buses[f"gpu{index}.bus"] for index in range(16)}) == 16


def test_several_kinds_are_written_with_commas_or_as_in_group_data() -> None:
    as_text = described("RTX PRO 6000 Blackwell Workstation Edition, 2x RTX 5090")
    as_data = described({"gpus": ["RTX PRO 6000 Blackwell Workstation Edition", "2x RTX 5090"], "host_memory_gib": 128})
    assert as_text == as_data
    assert (as_text["gpus"], as_text["gpu2.name"]) == ("3", "NVIDIA GeForce RTX 5090")
    assert as_text["open_kernel_module"] == "required"


def test_a_baseboard_with_switches_says_how_they_are_managed() -> None:
    assert described("8x H100 80GB HBM3")["nvswitches"] == "4"
    assert "nvswitches" not in described("8x H100 PCIe")
    assert described("8x B200")["nvlink_subnet_manager"] == "1"
    assert "gpu0.fabric_state" not in described("8x RTX 4090")


def test_an_unknown_gpu_is_an_error_that_names_the_option() -> None:
    with pytest.raises(InputError, match=r'^--rig: rig\.gpus: unknown GPU "RTX 3900"') as raised:
        describe("4x RTX 3900", "lab1")
    assert raised.value.hint == 'try "RTX 3090"'
