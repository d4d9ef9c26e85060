"""What the flags of a service are worth: memory is counted with the very values that the engine is given."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planner.asking import FP8, PRO_6000, refused, served

FOUR = f"4x {PRO_6000}"


def test_underscores_do_not_go_around_what_the_plan_decides() -> None:
    flags = {"--max_model_len": 196_608, "--tensor_parallel_size": 8, "--api_key": "sk-secret"}
    plan = refused(FOUR, {"checkpoint": FP8, "engine": "vllm", "flags": flags})
    assert [(finding.rule, finding.message.split()[0], finding.hint.split()[1]) for finding in plan.refusals] == [
        ("decided-option", "--max-model-len", "context"),
        ("decided-option", "--tensor-parallel-size", "tensor_parallel"),
        ("decided-option", "--api-key", "api_key_file"),
    ]
    assert "sk-secret" not in plan.model_dump_json(exclude={"service"})


@pytest.mark.parametrize(
    ("engine", "flags", "field", "value"),
    [
        ("vllm", {"--gpu_memory_utilization": 0.93}, "memory_fraction", 0.93),
        ("vllm", {"--max_num_seqs": 7}, "sequences", 7),
        ("vllm", {"--max_num_batched_tokens": 4096}, "batched_tokens", 4096),
        ("sglang", {"--mem_fraction_static": 0.85}, "memory_fraction", 0.85),
        ("vllm", {"--enforce_eager": True}, "eager", True),
    ],
)
def test_underscored_flags_are_counted(engine: str, flags: dict[str, Any], field: str, value: object) -> None:
    found = served(FOUR, {"checkpoint": FP8, "engine": engine, "flags": flags})
    assert getattr(found, field) == value
    assert {name.replace("_", "-"): given for name, given in flags.items()} == found.service.flags


@pytest.mark.parametrize(
    ("engine", "flags", "environment"),
    [
        ("vllm", {"--max-num-seqs": "inf"}, {}),
        ("vllm", {"--gpu-memory-utilization": 1.0}, {}),
        ("vllm", {"--gpu-memory-utilization": 10**400}, {}),
        ("vllm", {}, {"VLLM_PP_LAYER_PARTITION": "²,60"}),
        ("sglang", {"--max-running-requests": "1e400"}, {}),
    ],
)
def test_a_number_that_is_none_is_refused_and_nothing_else_is_served(
    engine: str, flags: dict[str, Any], environment: dict[str, str]
) -> None:
    plan = refused(FOUR, {"model": "MiniMax-M2.5", "engine": engine, "flags": flags, "environment": environment})
    assert [finding.rule for finding in plan.refusals] == ["counted-number"]
