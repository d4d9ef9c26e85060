"""Four RTX 3090 and 64 GiB: everything in GPU memory, with 2-bit weights and an 8-bit KV cache."""

rig = {"gpus": "4x RTX 3090", "host_memory_gib": 64}
services = {
    "minimax": {
        "checkpoint": "unsloth/MiniMax-M2.1-GGUF",
        "quant": "UD-IQ2_M",
        "engine": "llama.cpp",
        "context": 65536,
        "kv_cache_type": "q8_0",
        "sampling": {"temperature": 1.0, "top_p": 0.95, "top_k": 40},
        "tools": True,
    }
}
