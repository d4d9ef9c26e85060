"""vLLM on a machine without GPUs: planned where it is named and has a build for CPUs; llama.cpp stays the default."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.checkpoints.describe import describe
from rigup.checkpoints.repository import local_repository
from rigup.lock import Lock
from rigup.lockfile.catalogue_files import catalogue_edits, write_entries
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from tests import tiny_minimax_m2 as tiny
from tests.tiny.checkpoint import name_of, write_safetensors

TINY = {"model": tiny.MODEL, "engine": "vllm", "version": "0.32.0", "context": 2048}
GIB = 2**30


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """The toolkit's catalogue with the tiny model."""
    root = tmp_path_factory.mktemp("fleet")
    tiny.describe(root)
    return _loaded(root)


@cache
def _loaded(root: Path) -> Catalogue:
    return load_catalogue(root)


def planned(catalogue: Catalogue, memory_gib: float | None, **service: Any) -> Plan:
    """The plan for a rig without GPUs."""
    data = {"gpus": [], "host_memory_gib": memory_gib} if memory_gib else {"gpus": []}
    rig = read_rig(data, "test", catalogue)
    (wanted,) = read_services({"chat": {**TINY, **service}}, "test", rig)
    return plan_service("host", "group", rig, wanted, catalogue, Lock())


def test_vllm_is_planned_on_a_cpu_where_it_is_named(catalogue: Catalogue) -> None:
    plan = planned(catalogue, 16, reasoning=True)
    assert (plan.verdict, plan.build and plan.build.variant) == ("ok", "cpu")
    assert plan.build is not None and plan.build.provides == {"vllm": "0.32.0+cpu"}
    weights = f"/var/lib/rigup/weights/{tiny.REPO}/main"
    assert plan.command == (
        "bin/vllm", "serve", weights, "--served-model-name", "tiny-minimax-m2", "--host", "127.0.0.1",
        "--port", "8000", "--max-model-len", "2048", "--tensor-parallel-size", "1", "--max-num-seqs", "256",
        "--max-num-batched-tokens", "2048", "--enforce-eager", "--reasoning-parser", "minimax_m2",
        "--shutdown-timeout", "120",
    )  # fmt: skip
    assert plan.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    # what vLLM 0.32.0 itself says of 1 GiB for this model: "CPU KV cache size: 2,097,152 tokens"
    assert plan.kv_tokens == 2_097_152
    assert (plan.memory, plan.driver) == ((), None)
    assert [finding.rule for finding in plan.warnings if finding.rule.startswith("cpu")] == ["cpu-routing"]


# "CPU KV cache size" in the log of vLLM 0.32.0 for 1 GiB, of the models of tests/tiny, on a processor with AMX.
@pytest.mark.parametrize(
    ("kind", "tokens"),
    [
        ("full", 1_048_576),
        ("sliding_window", 332_222),
        ("chunked_local", 1_048_576),
        ("latent", 232_960),
        ("mamba", 3_050_402),
    ],
)
def test_every_class_holds_as_many_tokens_as_its_log_says(kind: str, tokens: int, tmp_path: Path) -> None:
    write_safetensors(tmp_path / name_of(kind), kind)
    found = describe(local_repository(tmp_path / name_of(kind), f"example/{name_of(kind)}"), None, {})
    write_entries(tmp_path, catalogue_edits(tmp_path, found, ()))
    plan = planned(_loaded(tmp_path), 16, model=name_of(kind))
    assert (plan.verdict, plan.kv_tokens) == ("ok", tokens)
    assert plan.host_parts is not None and plan.host_parts.kv_cache == GIB


def test_the_cache_grows_with_the_requests_in_flight(catalogue: Catalogue) -> None:
    one, many = planned(catalogue, 16), planned(catalogue, 16, concurrency=1500)
    assert many.environment["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert (many.host_memory_mib or 0) - (one.host_memory_mib or 0) >= 1024
    own = planned(catalogue, 16, environment={"VLLM_CPU_KVCACHE_SPACE": "3"})
    assert (own.environment["VLLM_CPU_KVCACHE_SPACE"], own.kv_tokens) == ("3", 3 * 2_097_152)


@pytest.mark.parametrize("memory_gib", [None, 4])
def test_memory_that_is_too_small_or_not_declared_is_refused(catalogue: Catalogue, memory_gib: float | None) -> None:
    plan = planned(catalogue, memory_gib)
    assert {finding.rule for finding in plan.refusals} == {"host-memory"}


@pytest.mark.parametrize(
    ("service", "rule", "message"),
    [
        ({"kv_cache_type": "fp8"}, "cpu-format", "vLLM 0.32.0 on a CPU serves a KV cache in BF16, not fp8"),
        ({"version": "0.33.0"}, "gpu-required", "vLLM needs "),
        ({"tensor_parallel": 2}, "gpu-count", "tensor 2 x pipeline 1 x data 1 need 2 GPUs"),
    ],
)
def test_what_it_cannot_do_is_refused(catalogue: Catalogue, service: dict[str, Any], rule: str, message: str) -> None:
    plan = planned(catalogue, 64, **service)
    (finding,) = plan.refusals
    assert finding.rule == rule and finding.message.startswith(message)


def test_llama_cpp_stays_the_default(catalogue: Catalogue) -> None:
    plan = planned(catalogue, 16, model="SmolLM2-135M-Instruct", engine=None, version=None)
    assert plan.build is not None and plan.build.engine == "llama.cpp"


def test_the_service_says_how_long_a_start_may_take(catalogue: Catalogue) -> None:
    plan = planned(catalogue, 16, start_timeout=40)
    assert (plan.start_timeout_s, plan.environment["VLLM_ENGINE_READY_TIMEOUT_S"]) == (40, "40")
    assert planned(catalogue, 16).start_timeout_s == 300


def test_a_cache_that_is_not_a_number_is_refused(catalogue: Catalogue) -> None:
    plan = planned(catalogue, 16, environment={"VLLM_CPU_KVCACHE_SPACE": "²"})
    (finding,) = plan.refusals
    assert finding.rule == "counted-number"
    assert "VLLM_CPU_KVCACHE_SPACE" in finding.message and '"²"' in finding.message


def test_a_cache_that_does_not_hold_one_request_is_refused(catalogue: Catalogue) -> None:
    asked = {
        "model": "MiniMax-M3",
        "checkpoint": "MiniMaxAI/MiniMax-M3",
        "context": 524_288,
        "allow": ["model-support"],
    }
    small = planned(catalogue, 1200, **asked, environment={"VLLM_CPU_KVCACHE_SPACE": "1"})
    assert [(finding.rule, finding.message, finding.hint) for finding in small.refusals] == [
        (
            "counted-number",
            "VLLM_CPU_KVCACHE_SPACE 1 cannot hold the 524,288 tokens of one request: they need 68 GiB",
            "write 68 or more, leave it out, or use a shorter context",
        )
    ]
    enough = planned(catalogue, 1200, **asked, environment={"VLLM_CPU_KVCACHE_SPACE": "68"})
    assert enough.verdict == "ok"
    assert (enough.kv_tokens or 0) >= 524_288
