"""Two DGX Sparks as one service, over the cable between their ConnectX-7 ports: docs/scale.md has the traps.

The subnet is that of the cable. The flags are what has served there: no CUDA graphs, and room left for the system.
"""

rig = {
    "gpus": "1x GB10",
    "host_memory_gib": 119,
    "os": "ubuntu-24.04",
    "hosts_per_service": 2,
    "network": {"private": True, "subnet": "192.168.100.0/24"},
}
services = {
    "minimax": {
        "checkpoint": "nvidia/MiniMax-M2.5-NVFP4",
        "engine": "vllm",
        "context": 65536,
        "tensor_parallel": 2,
        "flags": {"--enforce-eager": True, "--gpu-memory-utilization": 0.8},
    }
}
