"""Four B200 with the vLLM version that a published command pins, which crashes on them."""

rig = {"gpus": "4x B200"}
services = {
    "minimax": {
        "checkpoint": "MiniMaxAI/MiniMax-M2.5",
        "engine": "vllm",
        "version": "0.16.0",
        "tensor_parallel": 4,
        "context": 32768,
        "flags": {"--gpu-memory-utilization": 0.9},
    }
}
