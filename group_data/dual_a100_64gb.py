"""Two cards of 64 GB without offloading to the host: each would need 67 GB for weights alone."""

rig = {"gpus": "2x A100-SXM-64GB", "host_memory_gib": 512}
services = {
    "minimax": {
        "checkpoint": "mconcat/MiniMax-M2.5-NVFP4",
        "engine": "vllm",
        "version": "0.33.0",
        "tensor_parallel": 2,
        "context": 4096,
        "offload": "none",
        "concurrency": 64,
        "sampling": {"temperature": 0.7},
        "tools": True,
        "reasoning": True,
        "flags": {"--enforce-eager": True, "--gpu-memory-utilization": 0.95},
    }
}
