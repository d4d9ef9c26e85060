"""What an engine's log says of its kernels, from lines as vLLM 0.33.0 and SGLang 0.5.9 and 0.5.23 format them."""

from __future__ import annotations

import pytest

from rigup.operations.service.moe_configs import judge
from rigup.plan import MoeFolder

NAME = "E=32,N=1536,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
SPACED = NAME.replace("128,128", "128, 128")
VLLM = MoeFolder(path="/etc/rigup/moe_configs/vllm-1", files={NAME: "{}"})
SGLANG = MoeFolder(path="/etc/rigup/moe_configs/sglang-1", files={f"configs/triton_3_8_0/{SPACED}": "{}"})
PACKAGE = "/opt/rigup/builds/vllm-1/lib/python3.12/site-packages/vllm/model_executor/layers/fused_moe/configs"

USES = "(Worker_TP0 pid=77) INFO 11-21 20:00:00 [fused_moe.py:1152] Using configuration from {} for MoE layer."
DEFAULT = (
    "(Worker_TP0 pid=77) WARNING 11-21 20:00:00 [fused_moe.py:1165] Using default MoE config. Performance might be "
    f"sub-optimal! Config file not found at /etc/rigup/moe_configs/vllm-1/{NAME}, {PACKAGE}/{NAME}"
)
SGLANG_USES = "[2026-11-21 20:00:00 TP0 EP0] Using MoE kernel config from {}."
SGLANG_FALLBACK = (
    "[2026-11-21 20:00:00 TP0] Config file not found at /x/configs/triton_3_8_0/a.json. Fallback to triton version "
    "3.6.0 and use MoE kernel config from {}. Performance might be sub-optimal!"
)
SGLANG_DEFAULT = (
    "[2026-11-21 20:00:00 TP0] Using default MoE kernel config. Performance might be sub-optimal! Config file not "
    f"found at /etc/rigup/moe_configs/sglang-1/configs/triton_3_8_0/{SPACED}, you can create them with https://example.org"
)
SGLANG_DOWN = (
    "[2026-11-21 20:00:00 TP0] Using MoE kernel config with down_moe=False. Performance might be sub-optimal! Config "
    "file not found at /x/configs/triton_3_5_1/a_down.json, you can create them with https://example.org"
)


@pytest.mark.parametrize(
    ("folder", "lines", "said"),
    [
        (VLLM, [USES.format(f"{VLLM.path}/{NAME}")], "ours"),
        (VLLM, [USES.format(f"{PACKAGE}/{NAME}")], "engine's"),
        (None, [USES.format(f"{PACKAGE}/{NAME}")], "engine's"),
        (VLLM, [DEFAULT], "default (slower)"),
        (VLLM, [DEFAULT, USES.format(f"{VLLM.path}/{NAME}")], "ours and default (slower)"),
        (SGLANG, [SGLANG_USES.format(f"{SGLANG.path}/configs/triton_3_8_0/{SPACED}"), SGLANG_DOWN], "ours"),
        (SGLANG, [SGLANG_USES.format(f"{SGLANG.path}/configs/triton_3_8_0/other.json")], "engine's"),
        (SGLANG, [SGLANG_FALLBACK.format(f"{SGLANG.path}/configs/triton_3_6_0/{SPACED}")], "engine's"),
        (SGLANG, [SGLANG_DEFAULT], "default (slower)"),
        (VLLM, ["INFO: Started server process", "Using Triton MoE layer"], "not said"),
        (VLLM, [], "not said"),
    ],
)
def test_the_log_says_which_kernels_run(folder: MoeFolder | None, lines: list[str], said: str) -> None:
    assert judge(lines, folder) == said
