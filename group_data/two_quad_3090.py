"""Two hosts with four RTX 3090 each as one service: tensor parallel within a host, a pipeline between them."""

rig = {"gpus": "4x RTX 3090", "host_memory_gib": 64, "hosts_per_service": 2, "network": {"subnet": "10.20.0.0/24"}}
services = {"minimax": {"checkpoint": "nvidia/MiniMax-M2.5-NVFP4", "engine": "vllm", "context": 16384}}
