"""What must hold for every rig and service."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from rigup.rig import Gpu, Rig
from tests.unit.planner.asking import AWQ, FILE, FP8, NVFP4, PRO_6000, REAP, catalogue

NAMES = ("RTX 3090", "RTX 4090", "RTX 5090", PRO_6000, "H200", "B200", "A100-SXM4-80GB", "L40S", "GB10")
SUBJECTS = (
    {"model": "MiniMax-M2.5"},
    {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M"},
    {"model": "SmolLM2-135M-Instruct"},
    {"model": "MiniMax-M3"},
    {"checkpoint": FP8},
    {"checkpoint": NVFP4},
    {"checkpoint": AWQ},
    {"checkpoint": REAP},
)
equal = st.tuples(st.sampled_from(NAMES), st.integers(1, 8)).map(lambda pair: [pair[0]] * pair[1])
mixed = st.lists(st.sampled_from(NAMES), max_size=4)
gpus = st.one_of(equal, mixed)
host_memory = st.one_of(st.none(), st.integers(8, 1024))
services = st.builds(
    lambda subject, rest: {**subject, **rest},
    st.sampled_from(SUBJECTS),
    st.fixed_dictionaries(
        {},
        optional={
            "context": st.integers(1, 262_144),
            "concurrency": st.integers(1, 128),
            "engine": st.sampled_from(["vllm", "sglang", "llama.cpp"]),
            "kv_cache_type": st.sampled_from(["auto", "fp8", "q8_0", "bf16"]),
            "offload": st.sampled_from(["auto", "none", "experts"]),
        },
    ),
)


def rig_of(names: list[str], host_memory_gib: float | None) -> Rig:
    return read_rig(
        {"gpus": names, "host_memory_gib": host_memory_gib} if host_memory_gib else {"gpus": names}, FILE, catalogue()
    )


def plan_of(
    rig: Rig, service: dict[str, Any], host: str = "host", group: str = "group", lock: Lock | None = None
) -> Plan:
    (wanted,) = read_services({"chat": service}, FILE, rig)
    return plan_service(host, group, rig, wanted, catalogue(), lock or Lock(), advise=False)


def with_more_memory(rig: Rig, mib: int) -> Rig:
    """The same GPUs with more memory each; those that have none of their own get more of the host's."""
    larger = tuple(gpu if gpu.memory_mib is None else larger_gpu(gpu, mib) for gpu in rig.gpus)
    host = rig.host_memory_gib + mib / 1024 if rig.host_memory_gib else None
    return rig.model_copy(update={"gpus": larger, "host_memory_gib": host})


def larger_gpu(gpu: Gpu, mib: int) -> Gpu:
    return gpu.model_copy(update={"memory_mib": (gpu.memory_mib or 0) + mib})


@given(gpus, host_memory, services, st.integers(1, 60_000))
@example(["RTX 3090"], 227, {"checkpoint": NVFP4}, 28_672)
def test_more_memory_never_turns_feasible_into_refused(
    names: list[str], host: float | None, service: dict[str, Any], more: int
) -> None:
    rig = rig_of(names, host)
    if plan_of(rig, service).verdict == "ok":
        larger = plan_of(with_more_memory(rig, more), service)
        assert larger.verdict == "ok", larger.refusals


@given(gpus, host_memory, services)
def test_memory_adds_up_to_the_capacity(names: list[str], host: float | None, service: dict[str, Any]) -> None:
    plan = plan_of(rig_of(names, host), service)
    for row in plan.memory:
        parts = (row.weights_mib, row.kv_cache_mib, row.overhead_mib, row.free_mib)
        assert min(parts) >= 0
        assert sum(parts) == row.capacity_mib
        assert row.capacity_mib == (plan.rig.gpus[row.gpu].memory_mib or row.capacity_mib)


@given(gpus, host_memory, services)
def test_a_plan_holds_what_was_asked_or_says_why_not(
    names: list[str], host: float | None, service: dict[str, Any]
) -> None:
    plan = plan_of(rig_of(names, host), service)
    if plan.verdict == "refused":
        assert plan.refusals
        assert all(finding.message and finding.hint and finding.rule for finding in plan.refusals)
        assert (plan.build, plan.context, plan.memory) == (None, None, ())
        return
    assert plan.context == service.get("context", plan.context)
    assert plan.build is not None and plan.build.engine == service.get("engine", plan.build.engine)
    assert plan.kv_tokens is not None and plan.context is not None and plan.kv_tokens >= plan.context
    assert plan.decode_tokens_per_second is not None
    assert 0 < plan.decode_tokens_per_second.low <= plan.decode_tokens_per_second.high


@given(gpus, host_memory, services)
def test_a_plan_read_back_as_input_gives_the_same_plan(
    names: list[str], host: float | None, service: dict[str, Any]
) -> None:
    plan = plan_of(rig_of(names, host), service)
    if plan.verdict == "refused":
        return
    rig, said = described(json.loads(plan.model_dump_json()))
    again = plan_of(read_rig(rig, FILE, catalogue()), said)
    assert again.verdict == "ok", again.refusals
    kept = {"build", "checkpoint", "parallel", "context", "kv_cache_type", "memory", "host_memory_mib", "kv_tokens"}
    assert again.model_dump(include=kept) == plan.model_dump(include=kept)


def described(plan: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A plan's own words as a group_data file would say them."""
    rig: dict[str, Any] = {"gpus": [gpu["name"] for gpu in plan["rig"]["gpus"]]}
    if plan["rig"]["host_memory_gib"] is not None:
        rig["host_memory_gib"] = plan["rig"]["host_memory_gib"]
    parallel = plan["parallel"]
    service = {
        "checkpoint": plan["checkpoint"]["repo"],
        "quant": plan["checkpoint"]["quant"],
        "engine": plan["build"]["engine"],
        "version": plan["build"]["version"],
        "build": plan["build"]["method"],
        "context": plan["context"],
        "kv_cache_type": plan["kv_cache_type"],
        "concurrency": plan["service"]["concurrency"],
        "offload": plan["service"]["offload"],
    }
    if plan["memory"]:
        service["gpus"] = [row["gpu"] for row in plan["memory"]]
    if plan["build"]["engine"] != "llama.cpp":
        service |= {f"{kind}_parallel": parallel[kind] for kind in ("tensor", "pipeline", "data")}
        service["expert_parallel"] = parallel["expert"] > 1
    return rig, service


@given(st.lists(st.tuples(gpus, services), min_size=2, max_size=3), st.randoms())
def test_the_order_of_groups_does_not_matter(asked: list[tuple[list[str], dict[str, Any]]], random: Any) -> None:
    groups = [(f"group{n}", names, service) for n, (names, service) in enumerate(asked)]
    plans = {group: plan_of(rig_of(names, None), service, group=group) for group, names, service in groups}
    random.shuffle(groups)
    assert all(plan_of(rig_of(names, None), service, group=group) == plans[group] for group, names, service in groups)
