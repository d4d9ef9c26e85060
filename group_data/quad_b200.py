"""Four B200: the FP8 original."""

rig = {"gpus": "4x B200"}
services = {
    "minimax": {
        "checkpoint": "MiniMaxAI/MiniMax-M2.5",
        "engine": "vllm",
        "tensor_parallel": 4,
        "context": 32768,
        "concurrency": 512,
        "tools": True,
        "reasoning": True,
        "flags": {"--gpu-memory-utilization": 0.9},
    }
}
