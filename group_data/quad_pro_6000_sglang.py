"""Four RTX PRO 6000: two replicas on two cards each, for many concurrent requests."""

rig = {"gpus": "4x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 256}
services = {
    "minimax": {
        "checkpoint": "lukealonso/MiniMax-M2.5-NVFP4",
        "engine": "sglang",
        "tensor_parallel": 2,
        "data_parallel": 2,
        "concurrency": 64,
        "tools": True,
        "reasoning": True,
    }
}
