"""Names of fused-MoE configs, in each engine's spelling, and who has them."""

from __future__ import annotations

import pytest

from rigup.planner.moe_config import moe_config
from tests.unit.rules.builder import MAX_Q, candidate

FP8, NVFP4 = "MiniMaxAI/MiniMax-M2.5", "lukealonso/MiniMax-M2.5-NVFP4"
MAX_Q_FILE = "NVIDIA_RTX_PRO_6000_Blackwell_Max-Q_Workstation_Edition,dtype=fp8_w8a8"


@pytest.mark.parametrize(("engine", "block"), [("vllm", "[128,128]"), ("sglang", "[128, 128]")])
def test_eight_cards_with_whole_experts(engine: str, block: str) -> None:
    found = moe_config(candidate(f"8x {MAX_Q}", FP8, engine, parallel={"tensor": 8, "expert": 8}))
    assert found is not None
    assert found.file == f"E=32,N=1536,device_name={MAX_Q_FILE},block_shape={block}.json"
    assert found.status == "missing"


@pytest.mark.parametrize(("version", "status"), [("0.33.0", "engine"), ("0.12.0", "missing")])
def test_a_config_counts_as_shipped_from_the_version_that_ships_it(version: str, status: str) -> None:
    gpus = "4x RTX PRO 6000 Blackwell Server Edition"
    found = moe_config(candidate(gpus, FP8, "vllm", version, parallel={"tensor": 4}))
    assert found is not None
    assert found.file.startswith("E=256,N=384,")
    assert found.status == status


def test_only_fp8_experts_on_cards_that_compute_in_fp8_have_one() -> None:
    assert moe_config(candidate("2x B200", NVFP4)) is None
    assert moe_config(candidate("8x RTX 3090", FP8, parallel={"pipeline": 8})) is None
    assert moe_config(candidate("4x H200", "unsloth/MiniMax-M2.5-GGUF", "llama.cpp", quant="Q8_0")) is None
