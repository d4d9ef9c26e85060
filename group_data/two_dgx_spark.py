"""Two DGX Sparks as one service, over the cable between their ConnectX-7 ports; docs/multi-node.md has the pitfalls.

The subnet is the cable's. The flags are known to work there: no CUDA graphs, and memory left for the system.
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
