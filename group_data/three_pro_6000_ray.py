"""Three boxes of two RTX PRO 6000 as one vLLM service that Ray joins, on a network with others on it."""

rig = {
    "gpus": "2x RTX PRO 6000 Blackwell Workstation Edition",
    "host_memory_gib": 128,
    "hosts_per_service": 3,
    "network": {"private": False},
}
services = {
    "minimax": {"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm", "context": 131072, "across_hosts": "ray"}
}
