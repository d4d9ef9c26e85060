"""Whether a service could start again: what is asked before it is stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.facts.gpus import GpuProcess
from rigup.facts.probe import BuiltFor, Listener, Nvidia, Probe, ProbedGpu, UnitState
from rigup.plan import GpuMemory
from rigup.preflight.checks import preflight, shared_gpu_notes
from rigup.preflight.starting import restart_findings
from rigup.rig import Rig
from tests.unit.preflight.test_checks import CARD, GOOD, NOW, PLAN

MEMORY = GpuMemory(gpu=0, capacity_mib=24576, weights_mib=18000, kv_cache_mib=3000, overhead_mib=1000, free_mib=2576)
SERVED = PLAN.model_copy(update={"rig": Rig(gpus=(CARD,)), "memory": (MEMORY,)})
GPU = ProbedGpu(
    CARD.name, uuid="GPU-0", memory_used_mib=0, memory_total_mib=24576, compute_mode="default", processes=()
)
OWN = GpuProcess(100, "llama-server", "rigup-chat.service", 22000)
RUNS = {"chat": UnitState("active")}
SEEN = "GPU 0 (NVIDIA GeForce RTX 3090, GPU-0)"
BUILD = "vllm-0.33.0-abc"
MANIFEST: dict[str, Any] = {"build": BUILD, "command": ["vllm", "--port", "8000", "--gpu-memory-utilization", "0.9"]}
READY = replace(
    GOOD,
    nvidia=Nvidia(loaded="580.95.05", installed="580.95.05", cuda="13.0"),
    gpus=(replace(GPU, memory_used_mib=22000, processes=(OWN,)),),
    units=RUNS,
    built_for={BUILD: BuiltFor("13.0")},
)


def with_gpu(probe: Probe = READY, **gpu: Any) -> Probe:
    return replace(probe, gpus=tuple(replace(each, **gpu) for each in probe.gpus))


def about_cards(probe: Probe) -> list[str]:
    found = preflight(probe, (SERVED,), NOW)
    return [one.message for one in found if one.rule in ("host-gpu-held", "host-gpu-mode")]


OTHER = GpuProcess(7, "python3", "", 5000)


@pytest.mark.parametrize(
    ("probe", "held"),
    [
        (READY, ""),
        (with_gpu(memory_used_mib=24000, processes=(replace(OWN, memory_mib=19000), OTHER)), "4.9 GiB of 24.0 GiB"),
        (with_gpu(replace(READY, units={}), memory_used_mib=23040, processes=()), "22.5 GiB of 24.0 GiB"),
        (with_gpu(memory_used_mib=23040, processes=()), ""),
        (
            with_gpu(replace(READY, units={"chat": UnitState("activating")}), memory_used_mib=20480, processes=()),
            "20.0 GiB of 24.0 GiB",
        ),
        (with_gpu(memory_used_mib=23040, processes=None), ""),
        (replace(with_gpu(memory_used_mib=23040, processes=()), virtualisation="lxc"), ""),
        (with_gpu(memory_used_mib=23040, processes=(replace(OWN, memory_mib=None),)), ""),
        (with_gpu(memory_used_mib=23040, processes=(GpuProcess(9),)), ""),
        (with_gpu(replace(READY, units={}), memory_used_mib=400), ""),
        (with_gpu(memory_used_mib=None), ""),
    ],
    ids=[
        "its own", "another's", "a dead one's, none runs", "its own, not listed", "a dead one's, it cannot start",
        "no list", "a container", "its own unknown",
        "an unknown one's", "idle", "unknown",
    ],
)  # fmt: skip
def test_memory_that_others_hold_is_seen_where_it_can_be_told_apart(probe: Probe, held: str) -> None:
    found = about_cards(probe)
    assert [message.partition(" are held ")[0] for message in found] == ([f"{SEEN}: {held}"] if held else [])


def test_who_holds_the_memory_and_what_the_service_needs() -> None:
    (message,) = about_cards(with_gpu(memory_used_mib=24000, processes=(replace(OWN, memory_mib=19000), OTHER)))
    assert message.endswith(" are held by python3 (process 7); chat needs 21.5 GiB")


def test_a_service_that_the_inventory_lacks_is_named_with_the_way_to_remove_it() -> None:
    old = GpuProcess(8, "vllm", "rigup-old.service", 21000)
    there = replace(READY, units={"old": UnitState("active")}, current={"old": "1"})
    probe = with_gpu(there, memory_used_mib=21000, processes=(old,))
    (found,) = [one for one in preflight(probe, (SERVED,), NOW) if one.rule == "host-gpu-held"]
    assert "rigup-old.service (process 8)" in found.message and "rigup apply --remove" in found.hint
    assert not [one for one in preflight(probe, (SERVED,), NOW, remove=True) if one.rule == "host-gpu-held"]


def test_memory_that_others_hold_beside_enough_for_the_service_is_a_note() -> None:
    small = SERVED.model_copy(update={"memory": (MEMORY.model_copy(update={"weights_mib": 100, "kv_cache_mib": 20}),)})
    probe = with_gpu(replace(READY, units={}), memory_used_mib=20000, processes=())
    assert not [one for one in preflight(probe, (small,), NOW) if one.rule == "host-gpu-held"]
    (note,) = shared_gpu_notes(probe, (small,))
    assert note.startswith(f"warning: {SEEN}: 19.5 GiB of 24.0 GiB are held by no process that NVML names; chat takes")
    assert list(shared_gpu_notes(READY, (SERVED,))) == []
    (note,) = shared_gpu_notes(with_gpu(memory_used_mib=23040, processes=()), (small,))
    assert "21.4 GiB of 24.0 GiB are held by no process" in note


@pytest.mark.parametrize(
    ("mode", "processes", "refused", "noted"),
    [
        ("default", (OTHER,), False, False),
        ("exclusive process", (OWN,), False, True),
        ("exclusive process", (OTHER,), True, True),
        ("prohibited", (), True, False),
    ],
)
def test_a_compute_mode_that_keeps_the_service_away(
    mode: str, processes: tuple[GpuProcess, ...], refused: bool, noted: bool
) -> None:
    probe = with_gpu(memory_used_mib=0, compute_mode=mode, processes=processes)
    assert [mode in message for message in about_cards(probe)] == [True] * refused
    assert [mode in note for note in shared_gpu_notes(probe, (SERVED,))] == [True] * noted


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        (READY, ""),
        (replace(READY, nvidia=Nvidia(loaded="580.95.05", installed="580.178.04")), "580.178.04 is installed"),
        (replace(READY, nvidia=Nvidia()), "no NVIDIA driver is loaded"),
        (with_gpu(error="GPU is lost"), "GPU is lost"),
        (with_gpu(mig=True), "MIG is on"),
        (with_gpu(compute_mode="prohibited"), "compute mode is prohibited"),
        (with_gpu(memory_used_mib=24000, processes=(replace(OWN, memory_mib=19000), OTHER)), "chat takes 21.6 GiB"),
        (replace(READY, listeners=(Listener(8000, "0.0.0.0", "rigup-chat.service", "vllm"),)), ""),
        (replace(READY, listeners=(Listener(8000, "0.0.0.0", "nginx.service", "nginx"),)), "in use by nginx.service"),
        (replace(READY, nvidia=Nvidia(), built_for={}), ""),
    ],
    ids=["ready", "mismatch", "no driver", "lost", "mig", "mode", "memory", "own port", "port", "without CUDA"],
)
def test_a_release_that_would_not_start_again(probe: Probe, why: str) -> None:
    found = [one.message for one in restart_findings(probe, "chat", MANIFEST)]
    assert [why in message for message in found] == ([True] if why else [])


def test_only_the_cards_of_the_release_count() -> None:
    probe = replace(READY, gpus=(*READY.gpus, ProbedGpu(CARD.name, index=1, uuid="GPU-1", error="GPU is lost")))
    assert [one.rule for one in restart_findings(probe, "chat", MANIFEST)] == ["host-gpu-lost"]
    assert not list(restart_findings(probe, "chat", {**MANIFEST, "gpus": [[0, "GPU-0"]]}))
