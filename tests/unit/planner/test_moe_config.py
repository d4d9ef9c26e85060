"""Names of fused-MoE configs, in each engine's spelling, who has them, and whether the kernels that run read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment
from rigup.catalogue.moe_configs import MoeConfigFile
from rigup.lock import Lock
from rigup.planner.candidate import Candidate
from rigup.planner.moe_config import (
    config_filename,
    locked_otherwise,
    moe_config,
    takes_own_files,
    triton_version,
    unread_because,
    used_files,
)
from rigup.planner.rules import check
from tests.tuned_kernels import file_of, kernel
from tests.unit.planner.rules.builder import CATALOGUE, MAX_Q, candidate

FP8, NVFP4 = "MiniMaxAI/MiniMax-M2.5", "lukealonso/MiniMax-M2.5-NVFP4"
SIXTEEN_BITS = "Qwen/Qwen3-235B-A22B-Instruct-2507"
MAX_Q_FILE = "NVIDIA_RTX_PRO_6000_Blackwell_Max-Q_Workstation_Edition,dtype=fp8_w8a8"
FILE = file_of(kernel())


def eight(
    engine: str = "vllm", version: str | None = None, moe_configs: tuple[MoeConfigFile, ...] = (FILE,), **changes: Any
) -> Candidate:
    """Eight cards with whole experts, and a tuned kernel for them."""
    parallel = {"tensor": 8, "expert": 8}
    catalogue = replace(CATALOGUE, moe_configs=moe_configs)
    return candidate(f"8x {MAX_Q}", FP8, engine, version, parallel=parallel, catalogue=catalogue, **changes)


def warned(asked: Candidate) -> dict[str, str]:
    return {finding.rule: finding.message for finding in check(asked).warnings if finding.rule.startswith("moe-config")}


@pytest.mark.parametrize(
    ("engine", "version", "block"), [("vllm", "0.23.0", "[128,128]"), ("sglang", None, "[128, 128]")]
)
def test_eight_cards_with_whole_experts(engine: str, version: str | None, block: str) -> None:
    found = moe_config(eight(engine, version, moe_configs=()))
    assert found is not None
    assert found.file == f"E=32,N=1536,device_name={MAX_Q_FILE},block_shape={block}.json"
    assert (found.status, found.pins) == ("missing", {})
    assert warned(eight(engine, version, moe_configs=())).keys() == {"moe-config"}


@pytest.mark.parametrize(
    ("engine", "parallel", "shape"),
    [
        ("vllm", {"tensor": 4}, "E=256,N=384,"),
        ("vllm", {"tensor": 2, "data": 2}, "E=256,N=384,"),
        ("sglang", {"tensor": 2, "data": 2}, "E=256,N=768,"),
        ("vllm", {"tensor": 2, "data": 2, "expert": 4}, "E=64,N=1536,"),
        ("sglang", {"tensor": 4, "expert": 4}, "E=64,N=1536,"),
        ("vllm", {"pipeline": 4}, "E=256,N=1536,"),
    ],
)
def test_experts_and_width_follow_how_the_model_is_spread(engine: str, parallel: dict[str, int], shape: str) -> None:
    found = moe_config(candidate("4x H200", FP8, engine, parallel=parallel))
    assert found is not None
    assert found.file.startswith(shape)


@pytest.mark.parametrize(("version", "status"), [("0.23.0", "engine"), ("0.12.0", "missing")])
def test_a_config_counts_as_shipped_from_the_version_that_ships_it(version: str, status: str) -> None:
    gpus = "4x RTX PRO 6000 Blackwell Server Edition"
    found = moe_config(candidate(gpus, FP8, "vllm", version, parallel={"tensor": 4}))
    assert found is not None
    assert found.file.startswith("E=256,N=384,")
    assert found.status == status


def test_experts_that_triton_does_not_run_have_none() -> None:
    assert moe_config(candidate("2x B200", NVFP4)) is None
    assert moe_config(candidate("8x RTX 3090", FP8, parallel={"pipeline": 8})) is None
    assert moe_config(candidate("8x H200", "deepseek-ai/DeepSeek-V4-Flash-0731", parallel={"tensor": 8})) is None
    assert moe_config(candidate("2x H200", "Qwen/Qwen3.6-27B", parallel={"tensor": 2})) is None
    assert moe_config(candidate("4x H200", "unsloth/MiniMax-M2.5-GGUF", "llama.cpp", quant="Q8_0")) is None


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("gpus", ["2x RTX 5090", "2x L40S", "2x H100 80GB HBM3"])
def test_a_dense_model_has_none(gpus: str, engine: str) -> None:
    dense = candidate(gpus, "Qwen/Qwen3.6-27B-FP8", engine, parallel={"tensor": 2})
    assert moe_config(dense) is None and not warned(dense)


@pytest.mark.parametrize(
    ("gpus", "engine", "version", "file"),
    [
        ("4x H100 80GB HBM3", "vllm", None, "E=128,N=384,device_name=NVIDIA_H100_80GB_HBM3.json"),
        ("4x A100-SXM4-80GB", "vllm", None, "E=128,N=384,device_name=NVIDIA_A100-SXM4-80GB.json"),
        ("4x RTX 3090", "sglang", None, "E=128,N=384,device_name=NVIDIA_GeForce_RTX_3090.json"),
        (f"4x {MAX_Q}", "sglang", None, f"E=128,N=384,device_name={MAX_Q_FILE.partition(',')[0]}.json"),
        ("4x B200", "vllm", "0.19.1", "E=128,N=384,device_name=NVIDIA_B200.json"),
        ("4x B200", "vllm", None, None),
        ("4x B200", "sglang", None, None),
        (f"4x {MAX_Q}", "vllm", None, None),
        ("4x H100 80GB HBM3", "vllm", "0.22.1", None),
    ],
)
def test_experts_of_16_bits_have_one_where_the_engine_runs_triton(
    gpus: str, engine: str, version: str | None, file: str | None
) -> None:
    found = moe_config(candidate(gpus, SIXTEEN_BITS, engine, version, parallel={"tensor": 4}))
    assert (found and found.file) == file


@pytest.mark.parametrize(
    ("gpus", "version", "checkpoint", "service", "reads"),
    [
        (f"4x {MAX_Q}", "0.23.0", FP8, {}, True),
        (f"4x {MAX_Q}", "0.33.0", FP8, {}, False),
        (f"4x {MAX_Q}", "0.33.0", FP8, {"flags": {"--moe-backend": "triton"}}, True),
        (f"4x {MAX_Q}", "0.33.0", FP8, {"environment": {"VLLM_MOE_USE_DEEP_GEMM": "0"}}, True),
        (f"4x {MAX_Q}", "0.33.0", "Qwen/Qwen3.6-35B-A3B-FP8", {}, True),
        ("4x B200", "0.33.0", FP8, {}, False),
        ("4x B200", "0.33.0", FP8, {"environment": {"VLLM_USE_DEEP_GEMM": "0"}}, False),
        ("4x H100 80GB HBM3", "0.33.0", FP8, {}, True),
    ],
)
def test_block_fp8_on_blackwell_has_one_where_vllm_leaves_deep_gemm_out(
    gpus: str, version: str, checkpoint: str, service: dict[str, Any], reads: bool
) -> None:
    asked = candidate(gpus, checkpoint, version=version, parallel={"tensor": 4}, service=service)
    assert (moe_config(asked) is not None) is reads


def test_experts_of_16_bits_have_one_where_triton_is_asked_for_or_a_file_is_there() -> None:
    asked = candidate("4x B200", SIXTEEN_BITS, parallel={"tensor": 4}, service={"flags": {"--moe-backend": "triton"}})
    found = moe_config(asked)
    assert found is not None and (found.status, found.dtype, found.block_shape) == ("missing", "", None)
    own = file_of(kernel(experts=128, width=384, dtype="", block_shape=None, device="NVIDIA B200"), "b200.toml")
    with_file = candidate(
        "4x B200", SIXTEEN_BITS, parallel={"tensor": 4}, catalogue=replace(CATALOGUE, moe_configs=(own,))
    )
    found = moe_config(with_file)
    assert found is not None and (found.status, found.pins) == ("files", {"b200.toml": own.sha256})
    assert takes_own_files(with_file)


def test_a_missing_one_for_16_bits_is_said() -> None:
    there = candidate("4x H100 80GB HBM3", SIXTEEN_BITS, parallel={"tensor": 4})
    assert (moe_config(there) and warned(there)) == {}
    asked = candidate("4x RTX 3090", SIXTEEN_BITS, "sglang", parallel={"tensor": 4})
    assert warned(asked).keys() == {"moe-config"}


def test_the_family_of_the_h200_is_one_card_to_vllm_only() -> None:
    assert "device_name=NVIDIA_H200,dtype" in config_filename("vllm", 256, 384, "NVIDIA_H200_NVL", "fp8_w8a8", None)
    assert "device_name=NVIDIA_H200_NVL,dtype" in config_filename(
        "sglang", 256, 384, "NVIDIA_H200_NVL", "fp8_w8a8", None
    )
    assert "device_name=NVIDIA_GH200_480GB,dtype" in config_filename(
        "vllm", 256, 384, "NVIDIA_GH200_480GB", "fp8_w8a8", None
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_file_for_the_kernel_is_taken_with_its_hash(engine: str) -> None:
    found = moe_config(eight(engine))
    assert found is not None
    assert (found.status, found.pins) == ("files", {"max-q.toml": FILE.sha256})
    assert used_files(eight(engine)) == (FILE,)
    assert warned(eight(engine)) == {}


def test_cards_of_two_kinds_want_a_file_each() -> None:
    rig = {"gpus": [MAX_Q, "RTX PRO 6000 Blackwell Workstation Edition"]}
    parallel = {"pipeline": 2}
    one = file_of(kernel(experts=256))
    asked = candidate(
        "", FP8, rig=rig, parallel=parallel, gpu_indices=(0, 1), catalogue=replace(CATALOGUE, moe_configs=(one,))
    )
    found = moe_config(asked)
    assert found is not None and found.status == "missing"
    assert "device_name=NVIDIA_RTX_PRO_6000_Blackwell_Workstation_Edition" in found.file
    other = file_of(kernel(experts=256, device="NVIDIA RTX PRO 6000 Blackwell Workstation Edition"), "ws.toml")
    both = candidate(
        "", FP8, rig=rig, parallel=parallel, gpu_indices=(0, 1), catalogue=replace(CATALOGUE, moe_configs=(one, other))
    )
    assert [file.path for file in used_files(both)] == ["max-q.toml", "ws.toml"]


@pytest.mark.parametrize(
    ("engine", "version", "service", "because"),
    [
        ("vllm", None, {"flags": {"--moe-backend": "marlin"}}, "--moe-backend marlin"),
        ("vllm", None, {"flags": {"--moe_backend": "deep_gemm"}}, "--moe-backend deep_gemm"),
        ("sglang", None, {"flags": {"--moe-runner-backend": "cutlass"}}, "--moe-runner-backend cutlass"),
        ("vllm", "0.12.0", {"environment": {"VLLM_USE_DEEP_GEMM": "1"}}, "VLLM_USE_DEEP_GEMM=1"),
    ],
)
def test_kernels_that_read_no_config_make_a_file_useless_and_that_is_said(
    engine: str, version: str | None, service: dict[str, Any], because: str
) -> None:
    asked = eight(engine, version, service=service)
    assert unread_because(asked) == because
    assert moe_config(asked) is None
    assert used_files(asked) == ()
    assert warned(asked) == {
        "moe-config-unread": f"{because} does not read tuned kernels, so files/moe_configs/max-q.toml has no effect"
    }
    assert warned(eight(engine, version, service=service, moe_configs=())) == {}


@pytest.mark.parametrize(
    ("engine", "version", "service"),
    [
        ("vllm", None, {"flags": {"--moe-backend": "batched_triton"}}),
        ("vllm", None, {"environment": {"VLLM_USE_DEEP_GEMM": "1"}}),
        ("vllm", "0.12.0", {"environment": {"VLLM_USE_DEEP_GEMM": "0"}}),
        ("sglang", None, {"flags": {"--moe-runner-backend": "triton"}}),
    ],
)
def test_kernels_that_read_it_keep_it(engine: str, version: str | None, service: dict[str, Any]) -> None:
    assert used_files(eight(engine, version, service=service)) == (FILE,)


def test_sglang_in_an_image_keeps_its_own_and_that_is_said() -> None:
    asked = eight("sglang", build="image")
    assert used_files(asked) == ()
    assert warned(asked)["moe-config-image"] == (
        "files/moe_configs/max-q.toml is not used: with it, SGLang in an image would lose its built-in kernels"
    )
    assert used_files(eight("vllm", build="image")) == (FILE,)


def test_another_triton_than_the_builds_is_said() -> None:
    assert warned(eight(triton="3.6.0")) == {}
    assert warned(eight(triton="3.8.0")) == {
        "moe-config-triton": "files/moe_configs/max-q.toml was tuned with Triton 3.6.0, but the build has 3.8.0: it "
        "may be slower than no file"
    }


def test_the_locks_wheel_says_which_triton_a_build_has() -> None:
    files = {"torch-2.14.0-cp312-x.whl": "0" * 64, "triton-3.8.0-cp312-x.whl": "0" * 64}
    locked = LockedEnvironment(engine="vllm", version="0.33.0", python="3.12.12", files=files)
    assert triton_version(locked) == "3.8.0"
    assert triton_version(None) is None


def test_a_file_that_is_not_the_locked_one_is_refused_with_both_hashes() -> None:
    assert locked_otherwise(eight(), Lock()) == ()
    assert locked_otherwise(eight(), Lock(moe_configs={"max-q.toml": FILE.sha256})) == ()
    (finding,) = locked_otherwise(eight(), Lock(moe_configs={"max-q.toml": "0" * 64}))
    assert finding.message == (f"files/moe_configs/max-q.toml: sha256 is {FILE.sha256}, but rigup.lock has {'0' * 64}")
    unread = eight(service={"flags": {"--moe-backend": "marlin"}})
    assert locked_otherwise(unread, Lock(moe_configs={"max-q.toml": "0" * 64})) == ()
