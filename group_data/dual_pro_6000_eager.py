"""Two RTX PRO 6000: NVFP4 on vLLM without CUDA graphs, with a short context."""

rig = {"gpus": "2x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 128}
services = {
    "minimax": {
        "checkpoint": "mconcat/MiniMax-M2.5-NVFP4",
        "engine": "vllm",
        "version": "0.33.0",
        "tensor_parallel": 2,
        "context": 4096,
        "concurrency": 64,
        "sampling": {"temperature": 0.7},
        "tools": True,
        "reasoning": True,
        "flags": {"--enforce-eager": True, "--gpu-memory-utilization": 0.95},
    }
}
