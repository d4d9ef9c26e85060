"""Two RTX PRO 6000: INT4 in groups of 32."""

rig = {"gpus": "2x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 32}
services = {
    "minimax": {
        "checkpoint": "mratsim/MiniMax-M2.5-BF16-INT4-AWQ",
        "engine": "vllm",
        "tensor_parallel": 2,
        "context": 196608,
        "tools": True,
        "reasoning": True,
    }
}
