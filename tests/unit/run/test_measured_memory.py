"""What a plan has for each GPU beside what the card and the engine's log say: for status, and kept after a start."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from rigup.cli.status import table
from rigup.facts.probe import Probe, ProbedGpu
from rigup.lock import load_lock
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from rigup.run.measured_memory import kept, percent_off, rows, totals
from rigup.toolkit import toolkit_root
from tests.unit.planner.asking import FILE, catalogue

SMOL = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
LOG = [
    "I load_tensors:        CUDA0 model buffer size =    60.40 MiB",
    "I llama_kv_cache:      CUDA1 KV buffer size =   96.00 MiB",
]


def planned(count: int = 2, **service: Any) -> Plan:
    rig = read_rig({"gpus": f"{count}x RTX 3090"}, FILE, catalogue())
    (wanted,) = read_services({"chat": {**SMOL, "gpus": list(range(count)), **service}}, FILE, rig)
    return plan_service("gpu1", "group", rig, wanted, catalogue(), load_lock(toolkit_root() / "rigup.lock"))


def card(index: int, used: int | None, reserved: int | None = 300) -> ProbedGpu:
    return ProbedGpu("NVIDIA GeForce RTX 3090", used, 24576, 50, index, f"GPU-{index}", memory_reserved_mib=reserved)


def probed(*cards: ProbedGpu, **release: Any) -> Probe:
    return Probe(gpus=cards, releases={"chat": release} if release else {})


def test_a_row_for_each_gpu_has_what_the_driver_keeps_in_it() -> None:
    plan = planned()
    first, second = rows(plan, probed(card(0, 1500), card(1, 1700, None)), LOG)
    expected = [gpu.weights_mib + gpu.kv_cache_mib + gpu.overhead_mib for gpu in plan.memory]
    assert first == {
        "gpu": 0,
        "planned_mib": expected[0],
        "measured_mib": 1800,
        "capacity_mib": 24576,
        "parts": {"weights_mib": 60},
    }
    assert second["measured_mib"] == 1700 and second["parts"] == {"kv_cache_mib": 96}
    assert totals([first, second]) == (3500, sum(expected))


def test_cards_are_those_that_the_release_names() -> None:
    plan, swapped = planned(), (card(0, 1000, 0), card(1, 2000, 0))
    by_pairs = probed(*swapped, gpus=[[0, "GPU-1"], [1, "GPU-0"]])
    by_order = probed(*swapped, environment={"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0"})
    for probe in (by_pairs, by_order):
        assert [row["measured_mib"] for row in rows(plan, probe, [])] == [2000, 1000]
    by_index = probed(*swapped, environment={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert [row["measured_mib"] for row in rows(plan, by_index, [])] == [1000, 2000]


@pytest.mark.parametrize("cards", [(), (card(0, 1500),), (card(0, 1500), card(1, None))])
def test_what_nvml_does_not_say_is_not_made_up(cards: tuple[ProbedGpu, ...]) -> None:
    plan = planned()
    found = rows(plan, probed(*cards), LOG)
    assert found[1]["measured_mib"] is None
    assert totals(found) is None
    assert kept(plan, probed(*cards), LOG) is None


def test_a_start_is_kept_with_what_its_plan_was_made_with() -> None:
    plan = planned()
    found = kept(plan, probed(card(0, 1500), card(1, 1700)), LOG)
    assert found is not None
    assert {key: found[key] for key in ("engine", "version", "fraction", "runtime_mib")} == {
        "engine": "llama.cpp",
        "version": "b11434",
        "fraction": None,
        "runtime_mib": 1191,
    }
    assert found["parallel"] == {"tensor": 1, "pipeline": 1, "data": 1, "expert": 1}
    gpu = found["gpus"][0]
    assert gpu["name"] == "NVIDIA GeForce RTX 3090"
    assert gpu["planned_mib"] == gpu["weights_mib"] + gpu["kv_cache_mib"] + gpu["overhead_mib"]


def test_the_constant_is_the_one_that_the_plan_counted() -> None:
    plan = planned().model_copy(update={"runtime_mib": 1234})
    found = kept(plan, probed(card(0, 1500), card(1, 1700)), LOG)
    assert found is not None and found["runtime_mib"] == 1234


def test_vllms_fraction_is_kept_unless_the_cache_has_a_size_of_its_own() -> None:
    plan = planned(1)
    words = ("vllm", "serve", "--gpu-memory-utilization", "0.95")
    for command, fraction in ((words, 0.95), ((*words, "--kv-cache-memory-bytes", "1G"), None)):
        found = kept(plan.model_copy(update={"command": command}), probed(card(0, 1500)), [])
        assert found is not None and found["fraction"] == fraction


def shown(memory: list[dict[str, Any]], unit: str = "active") -> str:
    file = io.StringIO()
    row = {"host": "a", "service": "chat", "health": "answers", "drift": "none", "unit": unit, "memory": memory}
    Console(file=file, width=160).print(table([row]))
    return file.getvalue()


def test_status_says_how_far_off_the_plan_is() -> None:
    memory = [{"gpu": 0, "planned_mib": 22528, "measured_mib": 21914, "capacity_mib": 24576}]
    assert "22.0 GiB (-3 %)" in shown(memory) and "planned" in shown(memory)
    assert "planned" not in shown(memory, unit="failed")
    assert "planned" not in shown([])
    assert "planned" not in shown([{**memory[0], "measured_mib": None}])
    assert (percent_off(110, 100), percent_off(100, 100), percent_off(5, 0)) == ("+10 %", "+0 %", "+500 %")


def test_a_card_that_reports_no_reserve_is_taken_as_it_is() -> None:
    assert rows(planned(1), probed(replace(card(0, 1500), memory_reserved_mib=None)), [])[0]["measured_mib"] == 1500
