"""Tuned kernels as rigup lays them out, read by the engines' own functions out of their wheels. Needs the index."""

from __future__ import annotations

import functools
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.catalogue.option_names import package
from rigup.catalogue.versions import in_ranges
from rigup.commands.moe_configs import SGLANG_PACKAGED, folder_files
from rigup.operations.service.moe_configs import judge
from rigup.plan import MoeFolder
from rigup.planner.moe_config import SHIPPED, config_filename
from tests.golden.engine_functions import Log, functions, source_of, triton
from tests.golden.remote_wheel import open_wheel
from tests.golden.shipped_moe_configs import shipped
from tests.tuned_kernels import file_of, kernel

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("vLLM's package", "SGLang's package", "tuning")]

VLLM = ["0.12.0", "0.16.0", "0.20.2", "0.33.0"]
SGLANG = ["0.5.9", "0.5.10", "0.5.11", "0.5.14", "0.5.23"]
DEVICES = ["NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA GH200 480GB", "NVIDIA A100-SXM4-80GB", kernel().device]
SHAPES: list[tuple[str | None, list[int] | None]] = [("fp8_w8a8", [128, 128]), ("fp8_w8a8", None), (None, None)]


def wheel_of(engine: str, version: str) -> zipfile.ZipFile:
    return open_wheel(engine, package(engine, version)["file"])[0]


def vllm(wheel: zipfile.ZipFile, device: str, folder: Path | None = None) -> tuple[SimpleNamespace, Log]:
    """vLLM's functions on a card, with a folder of tuned configs."""
    log, fused_moe = Log(), source_of(wheel, r"vllm/model_executor/layers/fused_moe/fused_moe\.py")
    platform = SimpleNamespace(get_device_name=lambda *_: device)
    given: dict[str, Any] = {
        "current_platform": platform,
        "envs": SimpleNamespace(VLLM_TUNED_CONFIG_FOLDER=str(folder) if folder else None, VLLM_BATCH_INVARIANT=False),
        "vllm_is_batch_invariant": lambda: False,
        "logger": log,
        "__file__": "/nowhere/fused_moe.py",
    }
    if "get_device_name_as_file_name" in fused_moe:
        utilities = source_of(wheel, r"vllm/utils/platform_utils\.py")
        stand_ins: dict[str, Any] = {"current_platform": platform, "cache": functools.cache}
        found = functions(utilities, "get_device_name_as_file_name", **stand_ins)
        given["get_device_name_as_file_name"] = found.get_device_name_as_file_name
    return functions(fused_moe, "get_config_file_name", "get_moe_configs", **given), log


def sglang(wheel: zipfile.ZipFile, device: str, version: str = "3.6.0") -> tuple[SimpleNamespace, Log]:
    """SGLang's functions on a card, with a version of Triton."""
    log, source = Log(), source_of(wheel, r"sglang/srt/layers/moe/.*/fused_moe_triton_config\.py")
    arguments = SimpleNamespace(enable_deterministic_inference=False, deterministic=None)
    given = {
        "get_device_name": lambda *_: device,
        "get_global_server_args": lambda: arguments,
        "get_server_args": lambda: arguments,
        "get_exec": lambda: SimpleNamespace(deterministic=arguments),
        "triton": triton(version),
        "logger": log,
        "__file__": "/nowhere/configs.py",
    }
    return functions(source, "get_config_file_name", "get_moe_configs", **given), log


def expected() -> dict[int, dict[str, int]]:
    """The table as an engine has it once it was read."""
    return {count: launch.model_dump(exclude_none=True) for count, launch in kernel().launches.items()}


def laid_out(engine: str, folder: Path, version: str | None) -> MoeFolder:
    """The folder, written as on a host but for what is copied out of the build."""
    files = folder_files(engine, (file_of(kernel()),), version)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return MoeFolder(path=str(folder), files=files)


@pytest.mark.parametrize("version", VLLM)
def test_vllm_names_and_reads_them_so(version: str, tmp_path: Path) -> None:
    wheel = wheel_of("vllm", version)
    for device in DEVICES:
        found, _ = vllm(wheel, device)
        for dtype, block in SHAPES:
            block_pair = (block[0], block[1]) if block else None
            name = found.get_config_file_name(32, 1536, dtype, block)
            assert name == config_filename("vllm", 32, 1536, device.replace(" ", "_"), dtype or "", block_pair)

    folder = laid_out("vllm", tmp_path, None)
    found, log = vllm(wheel, kernel().device, tmp_path)
    assert found.get_moe_configs(32, 1536, "fp8_w8a8", 128, 128) == expected()
    assert judge(log.lines, folder) == "ours"
    assert found.get_moe_configs(256, 192, "fp8_w8a8", 128, 128) is None
    assert judge(log.lines[-1:], folder) == "default (slower)"


@pytest.mark.parametrize("version", SGLANG)
def test_sglang_names_and_reads_them_so(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = wheel_of("sglang", version)
    for device in DEVICES:
        found, _ = sglang(wheel, device)
        for dtype, block in SHAPES:
            block_pair = (block[0], block[1]) if block else None
            name = found.get_config_file_name(32, 1536, dtype, block)
            assert name == config_filename("sglang", 32, 1536, device.replace(" ", "_"), dtype or "", block_pair)

    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(tmp_path))
    folder = laid_out("sglang", tmp_path, "3.8.0")
    found, log = sglang(wheel, kernel().device, "3.8.0")
    assert found.get_moe_configs(32, 1536, "fp8_w8a8", 128, 128) == expected()
    assert judge(log.lines, folder) == "ours"
    assert found.get_moe_configs(256, 192, "fp8_w8a8", 128, 128) is None
    assert judge(log.lines[-1:], folder) == "default (slower)"


@pytest.mark.parametrize("version", SGLANG)
def test_sglangs_own_lie_where_they_are_copied_from(version: str) -> None:
    wheel = wheel_of("sglang", version)
    there = [path for path in SGLANG_PACKAGED if any(n.startswith(f"{path}/triton_") for n in wheel.namelist())]
    assert len(there) == 1
    source = source_of(wheel, r"sglang/srt/layers/moe/.*/fused_moe_triton_config\.py")
    assert '"configs"' in source, "the folder's name below SGLANG_MOE_CONFIG_DIR"


@pytest.mark.parametrize(("engine", "version"), [*(("vllm", v) for v in VLLM), *(("sglang", v) for v in SGLANG)])
def test_what_the_engines_ship_is_what_the_catalogue_says(engine: str, version: str) -> None:
    listed = {name for name, ranges in json.loads(SHIPPED.read_text())[engine].items() if in_ranges(version, ranges)}
    assert listed == shipped(wheel_of(engine, version))
