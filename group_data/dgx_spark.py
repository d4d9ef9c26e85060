"""One DGX Spark: GPU and CPU share 128 GB; NVML reports no GPU memory."""

rig = {"gpus": "1x GB10", "host_memory_gib": 119, "os": "ubuntu-24.04"}
services = {
    "minimax": {"checkpoint": "lukealonso/MiniMax-M2.5-REAP-139B-A10B-NVFP4", "engine": "vllm", "context": 32768}
}
