"""The demo's rig: no GPU, and a small real model served on the CPU."""

rig = {"gpus": []}
services = {"chat": {"model": "SmolLM2-135M-Instruct", "quick_build": True}}

# quick_build: the compiler is what a demo waits for. Only the kernels are optimised, which does for one reader.
# demo1 compiles the engine for itself; with a builder, this machine keeps the build for the next demo.
builder = "demo1"

# The lab's stand-in for the model hub. Remove this line to use the real hub.
hub = "http://hub:8090"
