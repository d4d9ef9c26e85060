"""What starts take of simulated GPUs, from the record of each apply to the constant that the next plan counts with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.gpus.simulated import SimulatedGpus
from tests.lab.gpu_fleet import OLD, GpuFleet, made_gpu_fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.rests_on(
        "the run",
        "drift and status",
        "src/rigup/cli/calibrate.py",
        "src/rigup/planner/memory/calibration.py",
        "src/rigup/planner/memory/overhead.py",
    ),
]

# As llama.cpp b11434 says it at --verbosity 4; the first of its devices is whichever card it was given.
SAID = """\
0.00.254.812 I load_tensors:        CUDA0 model buffer size =    90.00 MiB
0.00.260.148 I llama_kv_cache:      CUDA0 KV buffer size =    45.00 MiB
0.00.576.457 I sched_reserve:      CUDA0 compute buffer size =   100.00 MiB
"""

# What plans count before a fleet has measured: llama-server's process and the driver's reserve of 24 GiB.
RUNTIME_MIB = 760 + 431


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards and its driver, and nothing else yet."""
    with made_gpu_fleet(tmp_path_factory, "memory") as fleet:
        yield fleet


def serve(fleet: GpuFleet, context: int) -> None:
    service = {"model": "SmolLM2-135M-Instruct", "context": context, "gpus": [2]}
    fleet.describe_gpus(OLD, services={"chat": service})


def records(fleet: GpuFleet) -> list[dict[str, Any]]:
    applies: list[dict[str, Any]] = fleet.rigup("log", fleet.host.name, "--json").json["applies"]
    return applies


def overhead(fleet: GpuFleet) -> int:
    """MiB of overhead that the plan has for the service's one card."""
    (host,) = fleet.rigup("plan", "--json").json["hosts"]
    (gpu,) = host["memory"]
    return int(gpu["overhead_mib"])


def test_from_three_starts_to_a_constant(fleet: GpuFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gpus, used = SimulatedGpus(fleet.host.machine), (2000, 2400, 2100)
    serve(fleet, 1024)
    fleet.apply("--reboot")
    for number, mib in enumerate(used, 2):
        fleet.host.tell(f"mkdir -p /run/rigup-test; cat >/run/rigup-test/says <<'EOF'\n{SAID}EOF")
        gpus.set(2, memory_used_mib=mib)
        serve(fleet, 1024 * number)
        assert f"chat: GPU memory: {mib / 1024:.1f} of " in fleet.rigup("apply", "--yes").text

    kept = [record.get("memory", {}).get("chat") for record in records(fleet)]
    assert [start and start["gpus"][0]["measured_mib"] for start in kept] == [0, *used]
    assert kept[-1]["gpus"][0]["parts"] == {"weights_mib": 90, "kv_cache_mib": 45, "compute_mib": 100}
    assert f"chat: GPU memory: {used[-1] / 1024:.1f} of " in fleet.rigup("log", fleet.host.name).text

    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    assert "memory" not in records(fleet)[-1]

    (row,) = fleet.rigup("status", "--json").json["services"]
    (gpu,) = row["memory"]
    planned = kept[-1]["gpus"][0]["planned_mib"]
    assert {key: gpu[key] for key in ("gpu", "planned_mib", "measured_mib", "capacity_mib")} == {
        "gpu": 2,
        "planned_mib": planned,
        "measured_mib": used[-1],
        "capacity_mib": 24576,
    }
    assert gpu["parts"] == kept[-1]["gpus"][0]["parts"]
    assert f"{planned / 1024:.1f} GiB ({100 * (used[-1] - planned) / planned:+.0f} %)" in fleet.rigup("status").text

    before = overhead(fleet)
    found = fleet.rigup("plan", "--calibrate", "--write", "--json").json
    (calibration,) = found["calibrations"]
    assert (calibration["starts"], calibration["runtime_mib"], found["written"]) == (
        3,
        RUNTIME_MIB,
        "catalogue/overheads/measured.toml",
    )
    # the very first start, when nobody had set what is in use, says nothing
    (left_out,) = calibration["left_out"]
    assert left_out.startswith(f"{fleet.host.name}, chat, ") and " weights " in left_out
    assert overhead(fleet) == before - RUNTIME_MIB + calibration["wanted_mib"]
    fleet.apply()
