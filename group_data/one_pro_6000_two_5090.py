"""One large card and two small ones: each gets the layers that it can hold."""

rig = {"gpus": ["RTX PRO 6000 Blackwell Workstation Edition", "RTX 5090", "RTX 5090"], "host_memory_gib": 128}
services = {
    "minimax": {
        "checkpoint": "mconcat/MiniMax-M2.5-NVFP4",
        "engine": "vllm",
        "pipeline_parallel": 3,
        "context": 4096,
        "concurrency": 64,
        "flags": {"--enforce-eager": True, "--gpu-memory-utilization": 0.95},
    }
}
