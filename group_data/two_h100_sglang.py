"""Two HGX hosts with eight H100 each as one SGLang service, for many concurrent requests with full context."""

rig = {
    "gpus": "8x H100 80GB HBM3",
    "host_memory_gib": 1024,
    "hosts_per_service": 2,
    "network": {"subnet": "10.30.0.0/24"},
}
services = {
    "minimax": {"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "sglang", "context": 196608, "concurrency": 64}
}
