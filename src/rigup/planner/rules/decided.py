"""Options that the plan decides, each with the service's key that sets it.

Options about memory that the planner reads from the flags are in `rigup.planner.engine_memory`. This module also lists
options whose value is a secret, with what to do instead.
"""

from __future__ import annotations

import re

_VLLM = {
    "--model": "checkpoint",
    "--served-model-name": "served_name",
    "--host": "listen",
    "--port": "port",
    "--max-model-len": "context",
    "--tensor-parallel-size": "tensor_parallel",
    "-tp": "tensor_parallel",
    "--pipeline-parallel-size": "pipeline_parallel",
    "-pp": "pipeline_parallel",
    "--data-parallel-size": "data_parallel",
    "-dp": "data_parallel",
    "--enable-expert-parallel": "expert_parallel",
    "-ep": "expert_parallel",
    "--no-enable-expert-parallel": "expert_parallel",
    "--data-parallel-size-local": "data_parallel",
    "-dpl": "data_parallel",
    "--data-parallel-rank": "data_parallel",
    "-dpn": "data_parallel",
    "--data-parallel-start-rank": "data_parallel",
    "-dpr": "data_parallel",
    "--device-ids": "gpus",
    "--kv-cache-dtype": "kv_cache_type",
    "--quantization": "checkpoint",
    "-q": "checkpoint",
    "--quantization-config": "checkpoint",
    "--trust-remote-code": "trust_remote_code",
    "--no-trust-remote-code": "trust_remote_code",
    "--api-key": "api_key_file",
    "--shutdown-timeout": "drain_timeout",
}
_SGLANG = {
    "--model-path": "checkpoint",
    "--model": "checkpoint",
    "--served-model-name": "served_name",
    "--host": "listen",
    "--port": "port",
    "--context-length": "context",
    "--tp-size": "tensor_parallel",
    "--tp": "tensor_parallel",
    "--tensor-parallel-size": "tensor_parallel",
    "--pp-size": "pipeline_parallel",
    "--pipeline-parallel-size": "pipeline_parallel",
    "--dp-size": "data_parallel",
    "--dp": "data_parallel",
    "--data-parallel-size": "data_parallel",
    "--ep-size": "expert_parallel",
    "--ep": "expert_parallel",
    "--expert-parallel-size": "expert_parallel",
    "--base-gpu-id": "gpus",
    "--gpu-id-step": "gpus",
    "--device": "gpus",
    "--kv-cache-dtype": "kv_cache_type",
    "--quantization": "checkpoint",
    "--modelopt-quant": "checkpoint",
    "--quantize-and-serve": "checkpoint",
    "--trust-remote-code": "trust_remote_code",
    "--api-key": "api_key_file",
    "--config": "api_key_file",
}
_LLAMA_CPP = {
    "--model": "checkpoint",
    "-m": "checkpoint",
    "--hf-repo": "checkpoint",
    "-hf": "checkpoint",
    "-hfr": "checkpoint",
    "--hf-file": "checkpoint",
    "-hff": "checkpoint",
    "--model-url": "checkpoint",
    "-mu": "checkpoint",
    "--docker-repo": "checkpoint",
    "-dr": "checkpoint",
    "--models-dir": "checkpoint",
    "--models-preset": "checkpoint",
    "--alias": "served_name",
    "-a": "served_name",
    "--host": "listen",
    "--port": "port",
    "--ctx-size": "context",
    "-c": "context",
    "--cache-type-k": "kv_cache_type",
    "-ctk": "kv_cache_type",
    "--cache-type-v": "kv_cache_type",
    "-ctv": "kv_cache_type",
    "--n-gpu-layers": "offload",
    "--gpu-layers": "offload",
    "-ngl": "offload",
    "--tensor-split": "gpus",
    "-ts": "gpus",
    "--split-mode": "gpus",
    "-sm": "gpus",
    "--main-gpu": "gpus",
    "-mg": "gpus",
    "--device": "gpus",
    "-dev": "gpus",
    "--fit": "context",
    "-fit": "context",
    "--api-key": "api_key_file",
    "--api-key-file": "api_key_file",
}
DECIDED = {"vllm": _VLLM, "sglang": _SGLANG, "llama.cpp": _LLAMA_CPP}

_DOWNLOADS = "leave it out: the service downloads nothing; rigup itself takes a token from hub_token_file in group_data"
_SECRET = {
    "--admin-api-key": "leave it out, and write api_key_file in the service: that key never appears on a command line",
    "--hf-token": _DOWNLOADS,
    "-hft": _DOWNLOADS,
    "--ssl-keyfile-password": "leave it out: use a key without a password, in a file that only the service can read",
}
_SOUNDS_SECRET = re.compile(r"(^|-)(api-key|token|secret|password|passwd|passphrase|credential)$")


def instead_of_secret(option: str, value: object) -> str | None:
    """What to do instead of an option whose value is a secret, judged by its name; None for any other option."""
    if option in _SECRET:
        return _SECRET[option]
    is_text = isinstance(value, str) and not value.isdigit()
    return "leave it out" if is_text and _SOUNDS_SECRET.search(option.lower()) else None
