"""Six RTX 3090 with only a model and a context given: rigup chooses the quantisation."""

rig = {"gpus": "6x RTX 3090", "host_memory_gib": 64}
services = {"minimax": {"model": "MiniMax-M2.5", "context": 131072}}
