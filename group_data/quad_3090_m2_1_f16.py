"""Four RTX 3090, as quad_3090_m2_1 but with a 16-bit KV cache, which does not fit."""

rig = {"gpus": "4x RTX 3090", "host_memory_gib": 64}
services = {
    "minimax": {
        "checkpoint": "unsloth/MiniMax-M2.1-GGUF",
        "quant": "UD-IQ2_M",
        "engine": "llama.cpp",
        "context": 65536,
        "kv_cache_type": "f16",
        "offload": "none",
        "sampling": {"temperature": 1.0, "top_p": 0.95, "top_k": 40},
        "tools": True,
    }
}
