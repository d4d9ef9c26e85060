"""What the program says that asks NVML, on hosts that are well and hosts that are not."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rigup.programs
from rigup.programs import probe_gpus
from tests.hostile import SAFETY_S

LOST, UNKNOWN, MISMATCH = 15, 999, 18
HANGS = "NVML did not answer within 3 s"
FAKE = Path(__file__).parent / "fake_nvml.py"
CARD: dict[str, Any] = {
    "GetName": "NVIDIA GeForce RTX 3090",
    "GetUUID": "GPU-aaaa",
    "GetPciInfo": {"busId": "00000000:01:00.0"},
    "GetMemoryInfo": {"total": 24576 * 2**20, "used": 100 * 2**20, "reserved": 300 * 2**20},
    "GetCudaComputeCapability": [8, 6],
    "GetTemperature": 41,
    "GetCurrPcieLinkGeneration": 1,
    "GetMaxPcieLinkGeneration": 4,
    "GetCurrPcieLinkWidth": 8,
    "GetMaxPcieLinkWidth": 16,
    "GetPowerManagementLimit": 280000,
    "GetPowerManagementDefaultLimit": 350000,
    "GetPowerManagementLimitConstraints": [100000, 350000],
    "GetPersistenceMode": 1,
    "GetEccMode": [0, 1],
    "GetComputeMode": 3,
    "GetComputeRunningProcesses_v3": [],
    "GetCurrentClocksEventReasons": 0x4 | 0x40 | 0x1,
    "GetTopologyCommonAncestor": 30,
    "GetP2PStatus": {"0": 1, "2": 5},
}


def run(*gpus: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    words = [sys.executable, str(FAKE), json.dumps({"gpus": gpus, **more})]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SAFETY_S)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith("nvml {") for line in lines)
    return [ast.literal_eval(line.removeprefix("nvml ")) for line in lines]


def card(number: int, **more: Any) -> dict[str, Any]:
    return {**CARD, "GetUUID": f"GPU-{number}", **more}


def test_everything_that_a_card_says() -> None:
    system, gpu = run(CARD)
    assert system == {"system": {"driver": "580.95.05", "cuda": "13.1"}}
    assert gpu == {
        "gpu": 0,
        "name": "NVIDIA GeForce RTX 3090",
        "uuid": "GPU-aaaa",
        "bus": "00000000:01:00.0",
        "memory_total_mib": 24576,
        "memory_used_mib": 100,
        "memory_reserved_mib": 300,
        "compute_capability": "8.6",
        "temperature_c": 41,
        "pcie_generation": 1,
        "pcie_generation_most": 4,
        "pcie_width": 8,
        "pcie_width_most": 16,
        "power_limit_w": 280.0,
        "power_default_w": 350.0,
        "power_least_w": 100.0,
        "power_most_w": 350.0,
        "persistence": True,
        "ecc": False,
        "mig": None,
        "compute_mode": "exclusive process",
        "processes": [],
        "throttled": ["power cap", "hardware thermal"],
        "nvlinks": None,
        "fabric": None,
    }


def test_processes_on_a_card_are_told_with_their_unit_and_name() -> None:
    own, gone = os.getpid(), 2**22 + 1
    _, gpu = run({**CARD, "GetComputeRunningProcesses_v3": [[gone, None], [own, 3 * 2**30]]})
    (pid, used, unit, program), other = gpu["processes"]
    assert (pid, used, program) == (own, 3072, Path("/proc/self/comm").read_text().strip())
    assert unit == "" or unit.endswith(".service")
    assert other == [gone, None, None, ""]


def test_a_process_names_itself_and_groups_below_its_unit_as_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"cgroup": b"0::/user.slice/user@7.service/rigup-chat.service\n", "comm": b"\x1b[2J\xff'\n"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    opened = open
    monkeypatch.setattr("builtins.open", lambda path, **how: opened(tmp_path / Path(path).name, **how))
    assert probe_gpus._owner(7) == ("user@7.service", "?[2J?'")


def test_a_card_that_supports_next_to_nothing() -> None:
    _, gpu = run({"GetName": "NVIDIA GB10", "GetUUID": "GPU-b"})
    assert (gpu["name"], gpu["uuid"]) == ("NVIDIA GB10", "GPU-b")
    assert {value for key, value in gpu.items() if key not in ("gpu", "name", "uuid")} == {None}


def test_how_two_cards_reach_each_other() -> None:
    *_, pair = run(card(0), card(1))
    assert pair == {"pair": [0, 1], "path": "host-bridge", "peer": False, "nvlink": False}


def test_a_library_that_does_not_match_the_module() -> None:
    assert run(init={"code": MISMATCH}) == [{"error": "RM has detected an NVML/RM version mismatch"}]


@pytest.mark.parametrize(
    "second",
    [
        pytest.param({"handle": {"code": LOST}}, id="no handle"),
        pytest.param(card(1, GetTemperature={"code": LOST}), id="in the middle"),
    ],
)
def test_a_lost_card_is_told_and_the_others_are_read(second: dict[str, Any]) -> None:
    lines = run(card(0), second, card(2))
    assert [line.get("uuid") or line.get("error") for line in lines if "gpu" in line] == [
        "GPU-0",
        "GPU is lost",
        "GPU-2",
    ]
    assert [line["pair"] for line in lines if "pair" in line] == [[0, 2]]


def test_a_card_without_a_name_is_in_error() -> None:
    assert run({"GetName": {"code": UNKNOWN}})[1] == {"gpu": 0, "error": "Unknown Error"}


def test_a_card_that_hangs_is_left_behind() -> None:
    lines = run(card(0), card(1, GetEccMode="hang"), card(2), step_seconds=3)
    told = [(line["gpu"], line.get("error")) for line in lines if "gpu" in line]
    assert told == [(0, None), (1, HANGS), (2, None)]
    assert [line["pair"] for line in lines if "pair" in line] == [[0, 2]]


def test_a_driver_that_hangs_is_told() -> None:
    assert run(CARD, init="hang", step_seconds=3) == [{"error": f"{HANGS} (start)"}]


@pytest.mark.parametrize(
    ("said", "fabric"),
    [
        ({"state": 0, "status": 0}, None),
        ({"state": 1, "status": 0}, "not started"),
        ({"state": 2, "status": UNKNOWN}, "in progress"),
        ({"state": 3, "status": 0}, "completed"),
        ({"state": 3, "status": UNKNOWN}, "failed: Unknown Error"),
        ({"code": 3}, None),
    ],
)
def test_how_far_the_fabric_is(said: dict[str, int], fabric: str | None) -> None:
    assert run(card(0, GetGpuFabricInfoV=said))[1]["fabric"] == fabric


def test_asking_nvml_imports_little() -> None:
    folder = Path(rigup.programs.__file__).parent
    load = (
        f"import sys; sys.path[0:0] = [{str(folder)!r}]; import nvml; sys.modules['pynvml'] = nvml; import probe_gpus"
    )
    done = subprocess.run([sys.executable, "-IS", "-c", f"{load}; print(*sys.modules)"], capture_output=True, text=True)
    assert "probe_gpus" in done.stdout.split(), done.stderr
    assert not {"collections", "enum", "json", "re", "signal", "typing"} & set(done.stdout.split())
