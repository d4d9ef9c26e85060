"""The simulation held to probes of real GPUs, if any is recorded (docs/measurements); and the comparison itself."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rigup.facts.probe import PcieLink, PowerLimits, Probe, ProbedGpu, parse
from tests.unit.lab.recorded_probe import differences

ROOT = Path(__file__).parents[4]
RECORDED = [
    *sorted((ROOT / "tests/recorded_probes").glob("*.json")),
    *sorted((ROOT / "docs/measurements").glob("*.json")),
]

# made by hand from the catalogue, to try the comparison with: not a recording
CARD = ProbedGpu(
    "NVIDIA GeForce RTX 3090",
    memory_used_mib=1,
    memory_total_mib=24576,
    temperature_c=30,
    compute_capability="8.6",
    pcie=PcieLink(1, 16, 4, 16),
    power=PowerLimits(350.0, 350.0, 100.0, 350.0),
    persistence=False,
    nvlinks=0,
)


@pytest.mark.skipif(not RECORDED, reason="no probe of real GPUs is recorded yet: docs/measurements/README.md")
@pytest.mark.parametrize("path", RECORDED, ids=[path.stem for path in RECORDED])
def test_the_simulation_answers_as_real_cards_did(path: Path) -> None:
    assert differences(probe_of(json.loads(path.read_text())["probe"])) == []


def probe_of(recorded: Any) -> Any:
    """A probe as `rigup init` prints it, or as bin/gpu-check keeps it: the lines of the host."""
    return parse(recorded).as_json() if isinstance(recorded, list) else recorded


def test_a_probe_may_be_recorded_as_the_lines_of_the_host() -> None:
    lines = ["memory_kib 65536000", f"nvml {{'gpu': 0, 'name': '{CARD.name}', 'uuid': 'GPU-1'}}"]
    assert [gpu["name"] for gpu in probe_of(lines)["gpus"]] == [CARD.name]


def told(**changed: Any) -> list[str]:
    return differences(Probe(gpus=(replace(CARD, **changed),)).as_json())


def test_cards_that_answer_as_simulated_ones_do_differ_in_nothing() -> None:
    assert differences({"gpus": [asdict(replace(CARD, index=index)) for index in range(4)]}) == []
    assert told(memory_total_mib=24250, temperature_c=71, nvlinks=4) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"compute_capability": "8.9"}, "compute_capability: recorded 8.9, simulated 8.6"),
        ({"memory_total_mib": 23000}, "memory_mib: recorded 23000, simulated 24576"),
        ({"memory_of_host": True}, "memory_mib: recorded None, simulated 24576"),
        ({"power": PowerLimits(350.0, 350.0, 100.0, 366.0)}, "power.most_w: recorded 366.0, simulated 350.0"),
        ({"pcie": PcieLink(1, 16, 3, 16)}, "pcie.most_generation: recorded 3, simulated 4.0"),
        ({"ecc": False}, "ecc: recorded False, simulated None"),
        ({"nvlinks": None}, "nvlinks: recorded None, simulated 4"),
        ({"fabric": "completed"}, "fabric: recorded completed, simulated None"),
    ],
)
def test_each_difference_is_told_with_both_values(changed: dict[str, Any], words: str) -> None:
    assert told(**changed) == [f"GPU 0 (NVIDIA GeForce RTX 3090): {words}"]
