"""Three cards on PCIe: three does not divide the attention heads, so a pipeline splits the layers."""

rig = {"gpus": "3x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 128}
services = {
    "minimax": {"checkpoint": "nvidia/MiniMax-M2.5-NVFP4", "engine": "vllm", "pipeline_parallel": 3, "context": 131072}
}
