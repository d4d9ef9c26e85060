"""Two RTX PRO 6000: NVFP4 on vLLM with an 8-bit KV cache."""

rig = {"gpus": "2x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 128}
services = {
    "minimax": {
        "checkpoint": "lukealonso/MiniMax-M2.5-NVFP4",
        "engine": "vllm",
        "tensor_parallel": 2,
        "kv_cache_type": "fp8",
        "tools": True,
        "reasoning": True,
    }
}
