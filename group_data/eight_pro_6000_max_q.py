"""Eight RTX PRO 6000 Max-Q: FP8 on SGLang, whole experts on each card."""

rig = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}
services = {
    "minimax": {
        "checkpoint": "MiniMaxAI/MiniMax-M2.5",
        "engine": "sglang",
        "tensor_parallel": 8,
        "tools": True,
        "reasoning": True,
    }
}
