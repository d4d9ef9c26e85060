"""Eight RTX PRO 6000 Max-Q: FP8 on vLLM, whole experts on each card."""

rig = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}
services = {
    "minimax": {
        "checkpoint": "MiniMaxAI/MiniMax-M2.5",
        "engine": "vllm",
        "tensor_parallel": 8,
        "expert_parallel": True,
        "tools": True,
        "reasoning": True,
    }
}
