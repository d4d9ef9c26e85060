"""Which services are bound to the NUMA nodes of their cards, where a host has several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.commands.numa import numa_binding
from tests.unit.planner.rules.builder import candidate

FP8 = "MiniMaxAI/MiniMax-M2.5"


def test_vllm_from_wheels_is_bound() -> None:
    found = numa_binding(candidate("4x H200", FP8))
    assert found is not None
    assert (found.words, found.packages) == (("--numa-bind", "--numa-bind-nodes"), ("numactl",))


@pytest.mark.parametrize(
    ("engine", "version", "service", "changes"),
    [
        ("sglang", None, {}, {}),
        ("vllm", "0.32.0", {}, {}),
        ("vllm", None, {"flags": {"--numa-bind": False}}, {}),
        ("vllm", None, {"flags": {"--numa_bind_nodes": [0, 0]}}, {}),
        ("vllm", None, {"environment": {"PATH": "/opt/bin"}}, {}),
        ("vllm", None, {}, {"cpu_offload_gib": 8}),
        ("vllm", None, {}, {"build": "image"}),
    ],
)
def test_what_may_not_start_or_the_service_decides_is_not(
    engine: str, version: str | None, service: dict[str, Any], changes: dict[str, Any]
) -> None:
    asked = candidate("4x H200", FP8, engine, version, service=service)
    assert numa_binding(replace(asked, **changes)) is None
