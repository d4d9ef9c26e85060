"""A driver branch that reserves more of each GPU leaves less to a plan, and the plan says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.catalogue.driver_versions import locked_driver
from rigup.catalogue.drivers import driver_facts
from rigup.lock import Lock
from rigup.plan import Plan
from tests.unit.planner.asking import FP8, PRO_6000, decided
from tests.unit.planner.test_decide_properties import gpus, host_memory, plan_of, rig_of, services, with_more_memory

CALIBRATED, LATER = Lock(driver=locked_driver("580.178.04")), Lock(driver=locked_driver("595.71.05"))
IQ2_M = {"checkpoint": "unsloth/MiniMax-M2.1-GGUF", "quant": "UD-IQ2_M", "engine": "llama.cpp"}
TIGHT = {**IQ2_M, "kv_cache_type": "q8_0", "context": 65536, "offload": "none"}


def planned(gpus: object, service: dict[str, Any], lock: Lock, host_memory_gib: float | None = None) -> Plan:
    return decided(gpus, service, host_memory_gib, lock)


@pytest.mark.parametrize("branch", [470, 580, 590])
def test_branches_that_the_constants_hold_keep_nothing_more(branch: int) -> None:
    assert driver_facts().reserve(branch) is None


@pytest.mark.parametrize("version", ["580.178.04", "590.48.01"])
def test_a_plan_for_them_is_the_plan_without_a_locked_driver(version: str) -> None:
    locked = planned("4x RTX 3090", TIGHT, Lock(driver=locked_driver(version)))
    assert locked.memory and locked.memory == planned("4x RTX 3090", TIGHT, Lock()).memory


@pytest.mark.parametrize("branch", [595, 600])
def test_a_later_branch_keeps_what_was_reported_of_the_first_one(branch: int) -> None:
    reserve = driver_facts().reserve(branch)
    assert reserve is not None
    assert (reserve.branch, reserve.additional_mib, reserve.confidence) == (595, 1400, "medium")
    assert "one report on one card" in reserve.source


def test_what_is_not_known_of_610_is_said_where_its_figure_is_shown() -> None:
    lock = Lock(driver=locked_driver("610.57.04"))
    (figure,) = (f for f in planned("4x RTX 3090", IQ2_M, lock).figures if "reserve" in f.figure)
    assert (figure.subject, figure.value) == ("driver since branch 610", "1,400 MiB")
    assert figure.source.startswith("not known of 610") and figure.source.endswith("confidence low")


def test_a_plan_that_no_longer_fits_is_refused_with_what_would() -> None:
    assert planned("4x RTX 3090", TIGHT, CALIBRATED).verdict == "ok"
    refused = planned("4x RTX 3090", TIGHT, LATER)
    (finding,) = refused.refusals
    assert finding.rule == "gpu-memory"
    assert finding.message.endswith("; driver branches from 595 on reserve 1,400 MiB more of each GPU")
    assert any("q4_0 KV cache" in alternative.why for alternative in refused.alternatives)


def test_a_plan_that_may_choose_takes_less_context() -> None:
    before, after = (planned("4x RTX 3090", IQ2_M, lock) for lock in (CALIBRATED, LATER))
    assert before.context is not None and after.context is not None
    assert after.context < before.context
    assert after.memory[0].overhead_mib > before.memory[0].overhead_mib


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_gpu_of_an_engine_counts_it(engine: str) -> None:
    service = {"checkpoint": FP8, "engine": engine, "context": 32768, "tensor_parallel": 4}
    before, after = (planned(f"4x {PRO_6000}", service, lock) for lock in (CALIBRATED, LATER))
    assert len(after.memory) == 4
    for old, new in zip(before.memory, after.memory, strict=True):
        assert new.overhead_mib == old.overhead_mib + 1400
    assert after.kv_tokens is not None and before.kv_tokens is not None
    assert after.kv_tokens <= before.kv_tokens


def test_the_figure_is_explained_with_its_source_where_it_counts() -> None:
    (figure,) = (f for f in planned("4x RTX 3090", IQ2_M, LATER).figures if "reserve" in f.figure)
    assert figure.value == "1,400 MiB"
    assert figure.source.startswith("club-3090 149") and figure.source.endswith("confidence medium")
    assert not [f for f in planned("4x RTX 3090", IQ2_M, CALIBRATED).figures if "reserve" in f.figure]


@pytest.mark.parametrize("gpus", [[], "GB10"])
def test_where_rigup_leaves_the_driver_alone_its_branch_does_not_count(gpus: object) -> None:
    service = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
    assert planned(gpus, service, LATER, 64).model_dump() == planned(gpus, service, CALIBRATED, 64).model_dump()


@given(gpus, host_memory, services, st.integers(1, 60_000))
def test_less_reserve_and_more_memory_never_hurt(
    names: list[str], host: float | None, service: dict[str, Any], more: int
) -> None:
    rig = rig_of(names, host)
    if plan_of(rig, service, lock=LATER).verdict == "ok":
        for lock, larger in ((CALIBRATED, rig), (LATER, with_more_memory(rig, more))):
            found = plan_of(larger, service, lock=lock)
            assert found.verdict == "ok", found.refusals
