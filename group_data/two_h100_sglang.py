"""Two HGX boxes of eight H100 as one SGLang service, for the whole context of many requests at once."""

rig = {
    "gpus": "8x H100 80GB HBM3",
    "host_memory_gib": 1024,
    "hosts_per_service": 2,
    "network": {"subnet": "10.30.0.0/24"},
}
services = {
    "minimax": {"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "sglang", "context": 196608, "concurrency": 64}
}
