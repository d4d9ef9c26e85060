"""What is said of cards under load: too hot, at a power limit, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.facts.gpu_load import GpuLoad, HostLoad
from rigup.facts.probe import PowerLimits, Probe, ProbedGpu
from rigup.preflight.links import load_findings

CARD = ProbedGpu("NVIDIA GeForce RTX 3090", power=PowerLimits(limit_w=350, default_w=350))
SEEN: dict[str, Any] = {"gpu": 0, "name": CARD.name, "power_w": 345, "power_most_w": 351, "memory_most_mib": 22000}
SEEN |= {"temperature_most_c": 71, "clock_mhz": 1700.4, "highest_clock_mhz": 2100, "held_back": {}}


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({}, []),
        (
            {"held_back": {"power cap": 0.9}},
            [(False, "GPU 0: at its power limit of 350 W in 90% of the load; 1700 MHz of 2100")],
        ),
        (
            {"held_back": {"hardware slowdown": 0.25, "hardware thermal": 0.5}, "temperature_most_c": 92},
            [
                (
                    True,
                    "GPU 0: slowed down in 50% of the load at up to 92 °C: hardware slowdown, hardware thermal; "
                    "1700 MHz of 2100",
                )
            ],
        ),
        (
            {"held_back": {"power brake": 1}, "temperature_most_c": None, "clock_mhz": None},
            [(True, "GPU 0: slowed down in 100% of the load: power brake")],
        ),
        ({"held_back": None}, [(False, "GPU 0: NVML does not report what limits its clock")]),
    ],
)
def test_a_card_under_load(seen: dict[str, Any], said: list[tuple[bool, str]]) -> None:
    load = HostLoad(by="chat", seconds=60, gpus=[GpuLoad(**{**SEEN, **seen})])
    found = list(load_findings(load, Probe(gpus=(CARD,))))
    assert [(one.problem, one.message) for one in found] == said
    assert all(one.hint for one in found if one.problem)


def test_cards_of_which_nvml_says_nothing() -> None:
    (found,) = load_findings(HostLoad(by="chat", seconds=60, gpus=[]), Probe(gpus=(CARD,)))
    assert (found.problem, found.message) == (False, "NVML reported nothing about the GPUs during the load")
