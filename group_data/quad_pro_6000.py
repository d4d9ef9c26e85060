"""Four RTX PRO 6000: the FP8 original with tool calls and separate reasoning."""

rig = {"gpus": "4x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 256}
services = {
    "minimax": {
        "checkpoint": "MiniMaxAI/MiniMax-M2.5",
        "engine": "vllm",
        "tensor_parallel": 4,
        "tools": True,
        "reasoning": True,
    }
}
