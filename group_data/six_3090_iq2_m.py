"""Six RTX 3090: twice the context of four."""

rig = {"gpus": "6x RTX 3090", "host_memory_gib": 64}
services = {
    "minimax": {
        "checkpoint": "unsloth/MiniMax-M2.5-GGUF",
        "quant": "UD-IQ2_M",
        "engine": "llama.cpp",
        "context": 131072,
        "kv_cache_type": "q8_0",
    }
}
