"""Four B200 with the engine's official container image, pinned by digest in the lock."""

rig = {"gpus": "4x B200"}
services = {
    "minimax": {
        "checkpoint": "MiniMaxAI/MiniMax-M2.5",
        "engine": "vllm",
        "version": "0.20.2",
        "build": "image",
        "tensor_parallel": 4,
        "context": 32768,
    }
}
