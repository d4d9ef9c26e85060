"""One RTX PRO 6000: the pruned model in NVFP4."""

rig = {"gpus": "1x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 128}
services = {
    "minimax": {"checkpoint": "lukealonso/MiniMax-M2.5-REAP-139B-A10B-NVFP4", "engine": "vllm", "context": 81000}
}
