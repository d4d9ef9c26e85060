"""Eight RTX PRO 6000 Max-Q without expert parallelism: FP8 blocks do not divide evenly, so it is refused."""

rig = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}
services = {
    "minimax": {
        "checkpoint": "MiniMaxAI/MiniMax-M2.5",
        "engine": "sglang",
        "tensor_parallel": 8,
        "expert_parallel": False,
    }
}
