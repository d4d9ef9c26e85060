"""Tuned kernels as each engine wants them: names, JSON, folders, and the variable that points there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rigup.artifacts import LockedEnvironment
from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.commands.moe_configs import canonical_text
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.project.planning import plan_service
from rigup.service import Service
from tests.tuned_kernels import file_of, kernel

DEVICE = "NVIDIA_RTX_PRO_6000_Blackwell_Max-Q_Workstation_Edition"
RIG = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}


def environment(engine: str, version: str, triton: str, extra: str = "0") -> LockedEnvironment:
    files = {f"triton-{triton}-cp312-x.whl": "0" * 64, "other-1-x.whl": extra * 64}
    return LockedEnvironment.model_validate({"engine": engine, "version": version, "python": "3.12.12", "files": files})


def planned(engine: str, version: str, lock: Lock | None = None, **service: object) -> Plan:
    catalogue: Catalogue = replace(load_catalogue(), moe_configs=(file_of(kernel()),))
    asked = {"name": "minimax", "checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": engine, "version": version}
    rig = read_rig(RIG, "test", catalogue)
    plan = plan_service("h", "g", rig, Service.model_validate(asked | service), catalogue, lock or Lock())
    assert plan.verdict == "ok", plan.refusals
    return plan


def test_vllm_gets_a_flat_folder_and_triton_is_made_to_run() -> None:
    plan = planned("vllm", "0.33.0")
    assert plan.moe_config is not None and plan.moe_config.status == "files"
    assert plan.moe_folder is not None
    (name,) = plan.moe_folder.files
    assert name == f"E=32,N=1536,device_name={DEVICE},dtype=fp8_w8a8,block_shape=[128,128].json"
    assert name == plan.moe_config.file
    table = json.loads(plan.moe_folder.files[name])
    assert table.pop("triton_version") == "3.6.0"
    assert table["64"] == {
        "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4,
        "num_stages": 2, "SPLIT_K": 1,
    }  # fmt: skip
    assert list(table) == ["1", "64"]
    assert plan.environment["VLLM_TUNED_CONFIG_FOLDER"] == plan.moe_folder.path
    assert plan.moe_folder.path.startswith("/etc/rigup/moe_configs/vllm-")
    assert (plan.moe_folder.packaged, plan.moe_folder.copied_to) == ((), "")
    words = list(plan.command)
    assert words[words.index("--moe-backend") + 1] == "triton"


def test_before_the_option_vllm_is_told_by_variables() -> None:
    plan = planned("vllm", "0.14.1")
    assert "--moe-backend" not in plan.command
    assert (plan.environment["VLLM_USE_DEEP_GEMM"], plan.environment["VLLM_USE_FLASHINFER_MOE_FP8"]) == ("0", "0")
    assert plan.moe_folder is not None and plan.environment["VLLM_TUNED_CONFIG_FOLDER"] == plan.moe_folder.path


def test_sglang_gets_the_builds_own_and_ours_under_its_triton_without_that_key() -> None:
    lock = Lock(environments=(environment("sglang", "0.5.23", "3.8.0"),))
    plan = planned("sglang", "0.5.23", lock)
    assert plan.moe_folder is not None
    (path,) = plan.moe_folder.files
    name = f"E=32,N=1536,device_name={DEVICE},dtype=fp8_w8a8,block_shape=[128, 128].json"
    assert path == f"configs/triton_3_8_0/{name}"
    assert sorted(json.loads(plan.moe_folder.files[path])) == ["1", "64"]
    assert plan.environment["SGLANG_MOE_CONFIG_DIR"] == plan.moe_folder.path
    assert plan.moe_folder.packaged[0] == "sglang/srt/layers/moe/moe_runner/triton_utils/configs"
    assert plan.moe_folder.copied_to == "configs"
    assert "moe-config-triton" in {finding.rule for finding in plan.warnings}


def test_another_build_of_sglang_is_another_folder_and_another_content_too() -> None:
    def folder(engine: str, lock: Lock) -> str:
        found = planned(engine, "0.5.23" if engine == "sglang" else "0.33.0", lock).moe_folder
        assert found is not None
        return found.path

    one, other = (Lock(environments=(environment("sglang", "0.5.23", "3.8.0", digit),)) for digit in "01")
    assert folder("sglang", one) == folder("sglang", one)
    assert folder("sglang", one) != folder("sglang", other)
    one, other = (Lock(environments=(environment("vllm", "0.33.0", "3.8.0", digit),)) for digit in "01")
    assert folder("vllm", one) == folder("vllm", other)


def test_a_variable_of_the_users_own_counts() -> None:
    plan = planned("vllm", "0.33.0", environment={"VLLM_TUNED_CONFIG_FOLDER": "/srv/kernels"})
    assert plan.environment["VLLM_TUNED_CONFIG_FOLDER"] == "/srv/kernels"


def test_a_file_that_is_not_the_locked_one_makes_the_plan_a_refusal() -> None:
    catalogue = replace(load_catalogue(), moe_configs=(file_of(kernel()),))
    service = Service(name="minimax", checkpoint="MiniMaxAI/MiniMax-M2.5", engine="vllm")
    lock = Lock(moe_configs={"max-q.toml": "0" * 64})
    plan = plan_service("h", "g", read_rig(RIG, "test", catalogue), service, catalogue, lock)
    assert plan.verdict == "refused"
    assert [finding.rule for finding in plan.refusals] == ["moe-config-lock"]


def test_the_form_that_rigup_keeps_is_as_in_the_example(tmp_path: Path) -> None:
    """The whole file, as docs/moe_configs.md shows one."""
    assert canonical_text(kernel(launches={"1": kernel().launches[1].model_dump(exclude_none=True)})) == (
        'experts = 32\nwidth = 1536\ndtype = "fp8_w8a8"\nblock_shape = [128, 128]\n'
        'device = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"\ntriton = "3.6.0"\n\n'
        "[provenance]\n"
        'measured_by = "a test"\nmeasured_on = "a test"\nengine = "a test"\nbaseline = "a test"\ngain = "a test"\n'
        'source = "a test"\nlicence = "a test"\n\n'
        "[launches.1]\nBLOCK_SIZE_M = 16\nBLOCK_SIZE_N = 128\nBLOCK_SIZE_K = 128\nGROUP_SIZE_M = 1\nnum_warps = 4\n"
        "num_stages = 3\n\n"
        "[[measurements]]\ntokens = 1\nbaseline_us = 20.5\ntuned_us = 10.25\n"
    )
