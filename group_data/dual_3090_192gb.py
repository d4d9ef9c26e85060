"""Two RTX 3090 and 192 GiB of host memory for the experts that do not fit on the cards."""

rig = {"gpus": "2x RTX 3090", "host_memory_gib": 192}
services = {"minimax": {"model": "MiniMax-M2.5", "quant": "Q4_K_M"}}
