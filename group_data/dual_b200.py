"""Two B200: NVFP4, which these cards compute natively."""

rig = {"gpus": "2x B200"}
services = {
    "minimax": {"checkpoint": "lukealonso/MiniMax-M2.5-NVFP4", "engine": "vllm", "tensor_parallel": 2, "context": 32768}
}
