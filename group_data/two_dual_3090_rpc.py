"""Two hosts with two RTX 3090 each as one llama.cpp service: the worker provides its cards over RPC."""

rig = {"gpus": "2x RTX 3090", "host_memory_gib": 64, "hosts_per_service": 2, "network": {"subnet": "10.40.0.0/24"}}
services = {"minimax": {"model": "MiniMax-M2.5", "quant": "UD-IQ2_XXS", "engine": "llama.cpp", "context": 32768}}
