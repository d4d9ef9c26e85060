"""Two RTX 4090 in a box with 192 GiB: room for the experts that do not fit the cards."""

rig = {"gpus": "2x RTX 4090", "host_memory_gib": 192}
services = {"minimax": {"model": "MiniMax-M2.5", "quant": "Q4_K_M"}}
