"""Two RTX PRO 6000: NVFP4 on SGLang."""

rig = {"gpus": "2x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 64}
services = {
    "minimax": {
        "checkpoint": "lukealonso/MiniMax-M2.5-NVFP4",
        "engine": "sglang",
        "tensor_parallel": 2,
        "tools": True,
        "reasoning": True,
    }
}
