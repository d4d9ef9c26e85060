"""Options that change what the GPUs and the host hold, and that the plan neither decides nor counts, with a way out.

Source: vLLM 0.33.0 engine/arg_utils.py, SGLang 0.5.23 server_args.py, llama.cpp b11434 common/arg.cpp.
"""

from __future__ import annotations

_FRACTION = "write --gpu-memory-utilization instead, which the plan counts"
_OFFLOAD = "write --cpu-offload-gb instead, which the plan counts"
_FILE = "write its options in flags, where the plan sees them"
_VLLM = {
    "--kv-cache-memory-bytes": _FRACTION,
    "--num-gpu-blocks-override": _FRACTION,
    "--device-memory-utilization": _FRACTION,
    "--offload-backend": _OFFLOAD,
    "--offload-group-size": _OFFLOAD,
    "--offload-num-in-group": _OFFLOAD,
    "--offload-params": _OFFLOAD,
    "--offload-prefetch-step": _OFFLOAD,
    "--cpu-offload-params": _OFFLOAD,
    "--prefill-context-parallel-size": "leave it out: it takes GPUs beyond those of the plan",
    "-pcp": "leave it out: it takes GPUs beyond those of the plan",
    "--config": _FILE,
}
_SGLANG = {
    option: "leave it out: what does not fit is served with a smaller quantisation, or with llama.cpp and offload"
    for option in (
        "--cpu-offload-gb",
        "--offload-mode",
        "--offload-group-size",
        "--offload-num-in-group",
        "--offload-prefetch-step",
    )
}
_PLACED = "leave it out: what does not fit the GPUs is asked for with offload in the service"
_LLAMA_CPP = {
    "--no-kv-offload": _PLACED,
    "-nkvo": _PLACED,
    "--override-tensor": _PLACED,
    "-ot": _PLACED,
    "--n-cpu-ffn": _PLACED,
    "-ncffn": _PLACED,
    "--mmproj": "leave it out: the plan counts text models",
    "-mm": "leave it out: the plan counts text models",
    "--mmproj-url": "leave it out: the plan counts text models",
    "-mmu": "leave it out: the plan counts text models",
}
UNCOUNTED: dict[str, dict[str, str]] = {"vllm": _VLLM, "sglang": _SGLANG, "llama.cpp": _LLAMA_CPP}

# Options that name a second, smaller model which drafts for the first.
DRAFTS: dict[str, tuple[str, ...]] = {
    "vllm": ("--speculative-config", "-sc", "--spec-model"),
    "sglang": ("--speculative-draft-model-path", "--speculative-draft-model"),
    "llama.cpp": (
        "--model-draft",
        "-md",
        "--spec-draft-model",
        "--spec-draft-hf",
        "-hfd",
        "-hfrd",
        "--hf-repo-draft",
    ),
}
