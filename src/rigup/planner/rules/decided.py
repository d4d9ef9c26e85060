"""Options that the plan decides, each with the service's key that sets it.

Options about memory that the planner reads from the flags are in `rigup.planner.engine_memory`. This module also lists
options whose value is a secret, with what to do instead.
"""

from __future__ import annotations

import re

# By engine and key: the options that the key sets, in every spelling.
_OPTIONS = {
    "vllm": {
        "checkpoint": "--model --quantization -q --quantization-config",
        "served_name": "--served-model-name",
        "listen": "--host",
        "port": "--port",
        "context": "--max-model-len",
        "tensor_parallel": "--tensor-parallel-size -tp",
        "pipeline_parallel": "--pipeline-parallel-size -pp",
        "data_parallel": "--data-parallel-size -dp --data-parallel-size-local -dpl --data-parallel-rank -dpn "
        "--data-parallel-start-rank -dpr",
        "expert_parallel": "--enable-expert-parallel -ep --no-enable-expert-parallel",
        "gpus": "--device-ids",
        "kv_cache_type": "--kv-cache-dtype",
        "trust_remote_code": "--trust-remote-code --no-trust-remote-code",
        "api_key_file": "--api-key",
        "drain_timeout": "--shutdown-timeout",
    },
    "sglang": {
        "checkpoint": "--model-path --model --quantization --modelopt-quant --quantize-and-serve",
        "served_name": "--served-model-name",
        "listen": "--host",
        "port": "--port",
        "context": "--context-length",
        "tensor_parallel": "--tp-size --tp --tensor-parallel-size",
        "pipeline_parallel": "--pp-size --pipeline-parallel-size",
        "data_parallel": "--dp-size --dp --data-parallel-size",
        "expert_parallel": "--ep-size --ep --expert-parallel-size",
        "gpus": "--base-gpu-id --gpu-id-step --device",
        "kv_cache_type": "--kv-cache-dtype",
        "trust_remote_code": "--trust-remote-code",
        "api_key_file": "--api-key --config",
    },
    "llama.cpp": {
        "checkpoint": "--model -m --hf-repo -hf -hfr --hf-file -hff --model-url -mu --docker-repo -dr --models-dir "
        "--models-preset",
        "served_name": "--alias -a",
        "listen": "--host",
        "port": "--port",
        "context": "--ctx-size -c --fit -fit",
        "kv_cache_type": "--cache-type-k -ctk --cache-type-v -ctv",
        "offload": "--n-gpu-layers --gpu-layers -ngl",
        "gpus": "--tensor-split -ts --main-gpu -mg --device -dev",
        "tensor_parallel": "--split-mode -sm",
        "api_key_file": "--api-key --api-key-file",
    },
}
# The same of what joins the hosts of a service, by the setting of rig or service; where there are several hosts, also
# of what is decided then only.
_JOINING = {
    "vllm": {
        "rig.hosts_per_service": "--nnodes -n --node-rank -r --headless",
        "rig.network.subnet": "--master-addr",
        "join_port": "--master-port",
    },
    "sglang": {"rig.hosts_per_service": "--nnodes --node-rank", "join_port": "--dist-init-addr"},
    "llama.cpp": {"rig.hosts_per_service": "--rpc"},
}
_SEVERAL_HOSTS = {"across_hosts": "--distributed-executor-backend", "rig.hosts_per_service": "--device -dev"}


def _by_option(keys: dict[str, str]) -> dict[str, str]:
    return {option: key for key, named in keys.items() for option in named.split()}


DECIDED = {engine: _by_option(keys) for engine, keys in _OPTIONS.items()}
"""The key that sets an option, by engine and option."""
JOINING = {engine: _by_option(keys) for engine, keys in _JOINING.items()}
JOINING_SEVERAL = _by_option(_SEVERAL_HOSTS)

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
