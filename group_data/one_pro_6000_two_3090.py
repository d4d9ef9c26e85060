"""One large card and two small ones: some weights are offloaded to host memory, as far as it has room."""

rig = {"gpus": ["RTX PRO 6000 Blackwell Workstation Edition", "RTX 3090", "RTX 3090"], "host_memory_gib": 128}
services = {
    "minimax": {
        "checkpoint": "mconcat/MiniMax-M2.5-NVFP4",
        "engine": "vllm",
        "pipeline_parallel": 3,
        "context": 4096,
        "concurrency": 64,
        "flags": {"--enforce-eager": True, "--cpu-offload-gb": 10, "--gpu-memory-utilization": 0.95},
    }
}
