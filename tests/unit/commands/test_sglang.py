"""SGLang's command line, per version."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.commands import sglang
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from tests.unit.planner.rules.builder import MAX_Q, PRO_6000, candidate

FP8, NVFP4 = "MiniMaxAI/MiniMax-M2.5", "lukealonso/MiniMax-M2.5-NVFP4"
CHECKPOINT = Checkpoint(repo=FP8, quant="FP8", bytes=230_134_260_592)


def options(asked: Candidate) -> dict[str, Any]:
    return sglang.options(asked, CHECKPOINT)


def test_metrics_are_on_and_parsers_have_sglangs_names() -> None:
    asked = options(candidate("4x H200", FP8, "sglang", service={"tools": True, "reasoning": True}))
    assert asked["--enable-metrics"] is True
    assert asked["--tool-call-parser"] == "minimax-m2"
    assert asked["--reasoning-parser"] == "minimax"


@pytest.mark.parametrize(("version", "parser"), [("0.5.11", None), ("0.5.12", "mistral"), ("0.5.23", "mistral")])
def test_mistrals_own_format_is_named_where_it_can_be(version: str, parser: str | None) -> None:
    asked = options(candidate("2x H200", "mistralai/Mistral-Small-4-119B-2603", "sglang", version))
    assert (asked["--load-format"], asked.get("--model-config-parser")) == ("mistral", parser)
    assert not {"--load-format", "--model-config-parser"} & options(candidate("4x H200", FP8, "sglang")).keys()


def test_expert_and_data_parallel_sizes() -> None:
    asked = options(candidate(f"8x {MAX_Q}", FP8, "sglang", parallel={"tensor": 8, "expert": 8}))
    assert (asked["--tp-size"], asked["--ep-size"]) == (8, 8)
    assert "--dp-size" not in asked
    asked = options(candidate(f"4x {PRO_6000}", NVFP4, "sglang", parallel={"tensor": 2, "data": 2}))
    assert (asked["--tp-size"], asked["--dp-size"]) == (2, 2)


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12.post1"])
def test_kernels_are_chosen_on_blackwell_for_releases_that_choose_wrong_ones(version: str) -> None:
    asked = options(candidate("4x B200", FP8, "sglang", version))
    assert (asked["--fp8-gemm-backend"], asked["--moe-runner-backend"]) == ("triton", "triton")
    asked = options(candidate(f"4x {PRO_6000}", NVFP4, "sglang", version))
    assert asked["--moe-runner-backend"] == "flashinfer_cutlass"
    assert "--moe-runner-backend" not in options(candidate("4x H200", FP8, "sglang", version))


@pytest.mark.parametrize("version", ["0.5.13", "0.5.23"])
@pytest.mark.parametrize(("gpus", "checkpoint"), [("4x B200", FP8), (f"4x {PRO_6000}", FP8), ("4x B200", NVFP4)])
def test_later_releases_choose_for_themselves(version: str, gpus: str, checkpoint: str) -> None:
    asked = options(candidate(gpus, checkpoint, "sglang", version))
    assert not {"--fp8-gemm-backend", "--moe-runner-backend"} & asked.keys()
    asked = options(candidate(f"4x {PRO_6000}", NVFP4, "sglang", version))
    assert asked["--moe-runner-backend"] == "flashinfer_cutlass", "the choice is made for compute capability 10"


def test_no_sparse_attention_flags() -> None:
    asked = options(candidate(f"2x {PRO_6000}", NVFP4, "sglang"))
    assert not [option for option in asked if option.startswith(("--nsa", "--dsa"))]


def test_fp8_cache_has_the_engines_own_name() -> None:
    assert options(candidate("4x H200", FP8, "sglang", kv_cache_type="fp8"))["--kv-cache-dtype"] == "fp8_e4m3"


def test_a_pipeline_names_its_partition() -> None:
    asked = candidate(f"3x {PRO_6000}", NVFP4, "sglang", parallel={"pipeline": 3}, pipeline_partition=(22, 20, 20))
    assert sglang.environment(asked, CHECKPOINT)["SGLANG_PP_LAYER_PARTITION"] == "22,20,20"


def test_a_key_comes_from_a_file_that_only_the_service_reads() -> None:
    asked = options(candidate("4x H200", FP8, "sglang", service={"listen": "0.0.0.0"}))
    assert asked["--config"] == "${RUNTIME_DIRECTORY}/api-key.yaml"
    assert "--config" not in options(candidate("4x H200", FP8, "sglang"))
