"""Tuned fused-MoE kernel configs: the file that an engine will look for, in its own spelling, and who has it.

Names: vLLM fused_moe.py `get_config_file_name`, SGLang fused_moe_triton_config.py.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from rigup.catalogue import engines, flags
from rigup.layout import CONFIGURATION
from rigup.plan import MoeConfig
from rigup.planner.candidate import Candidate
from rigup.units import compute_capability

SHIPPED = engines.DATA / "moe_configs.json"
TOOLKIT_FILES = Path(__file__).parents[3] / "files" / "moe_configs"
FIRST_WITH_FP8 = (8, 9)


def folder_on_host(engine: str) -> str:
    """Where the tuned configs of an engine lie on a host: named to the engine by a variable, never in its package."""
    return f"{CONFIGURATION}/moe_configs/{engine}"


def moe_config(candidate: Candidate) -> MoeConfig | None:
    """The config that decides how fast the experts run, or None where no Triton kernel with a config is used.

    Only block-FP8 experts on GPUs that compute in FP8 take that path; Marlin, CUTLASS and llama.cpp have no such files.
    """
    gpus = candidate.gpus
    if candidate.engine.name == "llama.cpp" or candidate.checkpoint.scheme != "fp8_block128" or not gpus:
        return None
    if any(compute_capability(gpu.compute_capability) < FIRST_WITH_FP8 for gpu in gpus):
        return None
    name = file_name(candidate)
    return MoeConfig(file=name, status=_status(candidate.engine.name, candidate.version, name))


def file_name(candidate: Candidate) -> str:
    """`E=...,N=...,device_name=...`: experts held by one GPU, width of an expert's slice on it, and the card."""
    experts = candidate.experts // candidate.parallel.expert
    width = candidate.model.expert_intermediate // candidate.expert_shards
    device = candidate.gpus[0].moe_config_name
    # SGLang keeps the space inside the brackets, vLLM takes it out.
    block = "[128, 128]" if candidate.engine.name == "sglang" else "[128,128]"
    return f"E={experts},N={width},device_name={device},dtype=fp8_w8a8,block_shape={block}.json"


def _status(engine: str, version: str, name: str) -> Any:
    if (TOOLKIT_FILES / engine / name).is_file():
        return "files"
    return "engine" if flags.in_ranges(version, _shipped()[engine].get(name, "")) else "missing"


@functools.cache
def _shipped() -> dict[str, dict[str, str]]:
    data: dict[str, dict[str, str]] = json.loads(SHIPPED.read_text())
    return data
