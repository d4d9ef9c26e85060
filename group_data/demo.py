"""The demo's rig: no GPU, and a small real model that a CPU serves."""

rig = {"gpus": []}
services = {"chat": {"model": "SmolLM2-135M-Instruct"}}

# The lab's stand-in for the model hub. Without this line the real one is asked.
hub = "http://hub:8090"
