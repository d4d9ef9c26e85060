"""Two RTX 3090: 48 GB, and no host memory declared."""

rig = {"gpus": "2x RTX 3090"}
services = {"minimax": {"model": "MiniMax-M2.5", "quant": "Q4_K_M"}}
