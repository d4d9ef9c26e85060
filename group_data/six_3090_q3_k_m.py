"""Six RTX 3090: the largest 3-bit quantisation, with 65,536 tokens."""

rig = {"gpus": "6x RTX 3090", "host_memory_gib": 64}
services = {
    "minimax": {
        "checkpoint": "unsloth/MiniMax-M2.5-GGUF",
        "quant": "Q3_K_M",
        "engine": "llama.cpp",
        "context": 65536,
        "kv_cache_type": "q8_0",
    }
}
