"""Three hosts with two RTX PRO 6000 each as one vLLM service on Ray, on a network shared with other machines."""

rig = {
    "gpus": "2x RTX PRO 6000 Blackwell Workstation Edition",
    "host_memory_gib": 128,
    "hosts_per_service": 3,
    "network": {"private": False},
}
services = {
    "minimax": {"checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm", "context": 131072, "across_hosts": "ray"}
}
