"""Four B200 with the engine as its makers' container image, which the lock pins by digest."""

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
