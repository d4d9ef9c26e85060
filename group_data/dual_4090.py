"""Two RTX 4090: 48 GB, and no host memory declared."""

rig = {"gpus": "2x RTX 4090"}
services = {"minimax": {"model": "MiniMax-M2.5", "quant": "Q4_K_M"}}
