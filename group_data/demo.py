"""The demo's rig: no GPU, and a small real model served on the CPU."""

rig = {"gpus": []}
services = {"chat": {"model": "SmolLM2-135M-Instruct"}}

# The lab's stand-in for the model hub. Remove this line to use the real hub.
hub = "http://hub:8090"
