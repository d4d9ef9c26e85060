"""Options that change memory use and that the plan neither decides nor counts, with what to do instead."""

from __future__ import annotations

from typing import NamedTuple


class Unmodelled(NamedTuple):
    """hint: what to do instead. source: where the option is documented. harmless: values, as text, without effect."""

    hint: str
    source: str
    harmless: frozenset[str]


def _each(options: str, hint: str, source: str, harmless: str = "") -> dict[str, Unmodelled]:
    """One entry for each of the options. False, which removes an option, is harmless for all of them."""
    return dict.fromkeys(options.split(), Unmodelled(hint, source, frozenset({"False", *harmless.split()})))


_ADAPTERS = "leave it out: the plan counts one model, without adapters"
_REDUNDANT = "leave it out: the plan counts every expert once"
_CONTEXT_PARALLEL = "leave it out: the plan distributes the KV cache by tensor_parallel and pipeline_parallel only"
_HOST_CACHE = "leave it out: the plan keeps the KV cache on the GPUs"
_FLOAT32 = 'leave it out, or write "bfloat16": the plan counts two bytes for each unquantised weight'
_TWO_BYTES = "auto bfloat16 float16 half"

_VLLM = {
    **_each(
        "--kv-cache-memory-bytes --num-gpu-blocks-override --device-memory-utilization",
        "write --gpu-memory-utilization instead, which the plan counts",
        "vLLM 0.33.0 config/cache.py",
    ),
    **_each(
        "--offload-backend --offload-group-size --offload-num-in-group --offload-params --offload-prefetch-step "
        "--cpu-offload-params",
        "write --cpu-offload-gb instead, which the plan counts",
        "vLLM 0.33.0 config/offload.py",
    ),
    **_each(
        "--prefill-context-parallel-size -pcp",
        "leave it out: it takes GPUs beyond those of the plan",
        "vLLM 0.33.0 config/parallel.py",
        "1",
    ),
    **_each("--decode-context-parallel-size -dcp", _CONTEXT_PARALLEL, "vLLM 0.33.0 config/parallel.py", "1"),
    **_each("--enable-eplb --eplb-config", _REDUNDANT, "vLLM 0.33.0 config/parallel.py: num_redundant_experts"),
    **_each("--enable-lora", _ADAPTERS, "vLLM 0.33.0 config/lora.py"),
    **_each(
        "--kv-offloading-size --kv-transfer-config",
        _HOST_CACHE,
        "vLLM 0.33.0 config/cache.py and config/kv_transfer.py: a buffer in host memory",
    ),
    **_each(
        "--kv-cache-dtype-skip-layers",
        "leave it out: the plan counts one kv_cache_type for every layer",
        "vLLM 0.33.0 config/cache.py",
    ),
    **_each("--dtype", _FLOAT32, "vLLM 0.33.0 config/model.py", _TWO_BYTES),
    **_each("--config", "write its options in flags, which the plan reads", "vLLM 0.33.0 engine/arg_utils.py"),
}
_SMALLER = "leave it out; if the model does not fit, use a smaller quantisation, or llama.cpp with offload"
_SGLANG = {
    **_each(
        "--cpu-offload-gb --offload-mode --offload-group-size --offload-num-in-group --offload-prefetch-step "
        "--enable-paged-experts --kt-weight-path",
        _SMALLER,
        "SGLang 0.5.23 arg_groups/fields/exec_.py",
    ),
    **_each(
        "--max-total-tokens",
        "leave it out, or write --mem-fraction-static, which the plan counts",
        "SGLang 0.5.23 mem_cache/kv_cache_configurator.py: the smaller of it and the size that fits",
    ),
    **_each(
        "--attn-dp-size --attention-data-parallel-size --attn-cp-size --attention-context-parallel-size --moe-dp-size "
        "--moe-data-parallel-size --dwdp-size --dcp-size --decode-context-parallel-size",
        "leave it out: the plan splits attention and experts by tensor_parallel and expert_parallel only",
        "SGLang 0.5.23 arg_groups/fields/parallel.py and runtime_context.py",
        "1",
    ),
    **_each(
        "--enable-dp-attention --moe-dense-tp-size --shared-experts-tp-size",
        "leave it out: the plan splits every layer by tensor_parallel",
        "SGLang 0.5.23 arg_groups/fields/parallel.py",
    ),
    **_each(
        "--moe-a2a-backend --enable-waterfill",
        "leave it out; set expert_parallel in the service to keep whole experts on each GPU",
        "SGLang 0.5.23 arg_groups/overrides.py: _a2a_ep_size sets --ep-size to --tp-size",
        "none",
    ),
    **_each(
        "--enable-eplb --ep-num-redundant-experts",
        _REDUNDANT,
        "SGLang 0.5.23 arg_groups/fields/exec_.py",
        "0",
    ),
    **_each(
        "--enable-lora --lora-paths --uno-lora-path", _ADAPTERS, "SGLang 0.5.23 arg_groups/fields/lora.py, spec.py"
    ),
    **_each(
        "--enable-hierarchical-cache --enable-hicache --enable-hisparse --enable-lmcache --enable-flexkv "
        "--radix-cache-backend",
        _HOST_CACHE,
        "SGLang 0.5.23 arg_groups/fields/memory.py: a pool in host memory for each rank",
    ),
    **_each("--dtype", _FLOAT32, "SGLang 0.5.23 arg_groups/fields/model.py", _TWO_BYTES),
}
_ARGUMENTS = "llama.cpp b11434 common/arg.cpp"
_LLAMA_CPP = {
    **_each(
        "--no-kv-offload -nkvo --n-cpu-ffn -ncffn",
        "leave it out; if the model does not fit the GPUs, set offload in the service",
        _ARGUMENTS,
    ),
    **_each("--mmproj -mm --mmproj-url -mmu", "leave it out: the plan counts text models", _ARGUMENTS),
    **_each("--lora --lora-scaled --control-vector --control-vector-scaled", _ADAPTERS, _ARGUMENTS),
    **_each(
        "--flash-attn -fa",
        "leave it out: without flash attention the value cache cannot be quantised, and attention scores take memory",
        "llama.cpp b11434 src/llama-context.cpp: quantized V cache requires flash_attn to be enabled",
        # common/arg.cpp reads these as on or as auto, which means on with these GPUs
        "on enabled true 1 auto -1",
    ),
}
UNMODELLED: dict[str, dict[str, Unmodelled]] = {"vllm": _VLLM, "sglang": _SGLANG, "llama.cpp": _LLAMA_CPP}

# Options that name a second, smaller model for speculative decoding.
DRAFTS: dict[str, tuple[str, ...]] = {
    "vllm": ("--speculative-config", "-sc", "--spec-model"),
    "sglang": ("--speculative-draft-model-path", "--speculative-draft-model"),
    "llama.cpp": ("--model-draft", "-md", "--spec-draft-model", "--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"),
}
