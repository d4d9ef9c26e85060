"""vLLM: the command line of `vllm serve`, with the names that each version knows."""

from __future__ import annotations

from rigup.catalogue.option_names import known_values
from rigup.commands.options import (
    Options,
    gpu_variables,
    kv_cache_type,
    model_path,
    parsers,
    sampling_json,
    start_timeout_s,
)
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from rigup.planner.memory.cpu import cache_gib
from rigup.planner.moe_config import other_kernels, takes_own_files

# What "auto" chooses from the names of files in the folder: vLLM 0.33.0 transformers_utils/config.py, model_loader/
# default_loader.py, tokenizers/registry.py. PixtralForConditionalGeneration ends without this tokenizer.
MISTRAL_FORMAT: Options = {"--config-format": "mistral", "--load-format": "mistral", "--tokenizer-mode": "mistral"}

_SM100, _LARGE_BLOCK = 10, 128


def program(candidate: Candidate, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The first words: the program, relative to the build's folder, and the weights."""
    return ("bin/vllm", "serve", model_path(candidate.checkpoint, checkpoint))


def options(candidate: Candidate, checkpoint: Checkpoint) -> Options:
    """The options for this candidate, in display order. Prometheus metrics are on by default at /metrics."""
    service, parallel = candidate.service, candidate.parallel
    chosen: Options = {
        "--served-model-name": candidate.served_name,
        "--host": service.listen,
        "--port": service.port,
        "--max-model-len": candidate.context,
        "--tensor-parallel-size": parallel.tensor,
    }
    if parallel.pipeline > 1:
        chosen["--pipeline-parallel-size"] = parallel.pipeline
    if parallel.data > 1:
        chosen["--data-parallel-size"] = parallel.data
    if parallel.expert > 1:
        chosen["--enable-expert-parallel"] = True
    chosen |= _memory(candidate)
    if candidate.checkpoint.mistral_class:
        chosen |= MISTRAL_FORMAT
    chosen.update(candidate.checkpoint.engine_flags.get("vllm", {}))
    chosen |= _attention_backend(candidate)
    chosen |= _backends(candidate)
    if service.trust_remote_code:
        chosen["--trust-remote-code"] = True
    chosen |= _parsers(candidate)
    if text := sampling_json(candidate):
        chosen["--override-generation-config"] = text
    if service.drain_timeout and "--shutdown-timeout" in candidate.known_options:
        chosen["--shutdown-timeout"] = service.drain_timeout
    return chosen


def environment(candidate: Candidate, checkpoint: Checkpoint) -> dict[str, str]:
    """The variables that the version knows."""
    variables = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # vLLM's default of ten minutes is too short for reading a large model from a slow disk.
        "VLLM_ENGINE_READY_TIMEOUT_S": str(start_timeout_s(candidate, checkpoint)),
        **gpu_variables(candidate),
    }
    if candidate.gpus and candidate.build == "wheel":
        # Else vLLM 0.33.0 compiles FlashInfer's top-k in its start, which took 37 minutes on two slow processors and
        # 5.7 GB (docs/measurements), and ends there without a compiler. It has kernels of its own for sampling.
        variables["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    if not candidate.gpus:
        variables["VLLM_CPU_KVCACHE_SPACE"] = str(cache_gib(candidate))
        if candidate.parallel.tensor > 1:
            # vLLM compiles its embedding layer then, eager or not: vllm 0.32.0 vocab_parallel_embedding.py.
            variables["TORCH_COMPILE_DISABLE"] = "1"
    if candidate.pipeline_partition:
        variables["VLLM_PP_LAYER_PARTITION"] = ",".join(str(part) for part in candidate.pipeline_partition)
    if _nvfp4_backend(candidate) and "--moe-backend" not in candidate.known_options:
        # The default FlashInfer path converts the weights while loading and can run out of memory doing so.
        variables["VLLM_USE_FLASHINFER_MOE_FP4"] = "0"
    if takes_own_files(candidate) and "--moe-backend" not in candidate.known_options:
        variables |= dict.fromkeys(other_kernels(candidate), "0")
    known = candidate.known_variables
    return {name: value for name, value in variables.items() if not name.startswith("VLLM_") or name in known}


def _memory(candidate: Candidate) -> Options:
    chosen: Options = {
        **({"--gpu-memory-utilization": candidate.memory_fraction} if candidate.gpus else {}),
        "--max-num-seqs": candidate.sequences,
        "--max-num-batched-tokens": candidate.batched_tokens,
    }
    chosen |= kv_cache_type(candidate)
    if candidate.cpu_offload_gib:
        chosen["--cpu-offload-gb"] = candidate.cpu_offload_gib
    # compiling for a CPU needs a C++ compiler on the host
    if candidate.eager or not candidate.gpus:
        chosen["--enforce-eager"] = True
    return chosen


def _attention_backend(candidate: Candidate) -> Options:
    """FlashAttention on compute capability 10 for a checkpoint that needs large blocks, as MiniMax-M3 does.

    vLLM takes FlashInfer there, whose kernels for blocks of 128 tokens it has only if the host reaches NVIDIA's server
    when it starts; else it ends with "No common block size": 0.33.0 v1/attention/backends/flashinfer.py.
    """
    block = candidate.checkpoint.engine_flags.get("vllm", {}).get("--block-size", "0")
    on_sm100 = any(gpu.capability[0] == _SM100 for gpu in candidate.gpus)
    large = block.isdecimal() and int(block) >= _LARGE_BLOCK
    known = "--attention-backend" in candidate.known_options
    return {"--attention-backend": "FLASH_ATTN"} if large and on_sm100 and known else {}


def _backends(candidate: Candidate) -> Options:
    if "--moe-backend" not in candidate.known_options:
        return {}
    backend = "triton" if takes_own_files(candidate) else _nvfp4_backend(candidate)
    if backend is None or backend not in known_values("vllm", candidate.version, "--moe-backend"):
        return {}
    return {"--moe-backend": backend}


def _nvfp4_backend(candidate: Candidate) -> str | None:
    """The kernels for NVFP4 experts on SM120: the default FlashInfer kernels are made for SM100 and need more memory.

    CUTLASS runs if every card computes in the format; Marlin also runs on older cards. Where inputs stay 16 bits wide
    vLLM takes Marlin by itself, and refuses CUTLASS: 0.33.0 fused_moe/oracle/nvfp4.py.
    """
    capabilities = [gpu.capability for gpu in candidate.gpus]
    if candidate.checkpoint.scheme != "nvfp4" or max(capabilities, default=(0, 0)) < (12, 0):
        return None
    return "cutlass" if min(capabilities) >= (12, 0) else "marlin"


def _parsers(candidate: Candidate) -> Options:
    chosen = parsers(candidate)
    return {"--enable-auto-tool-choice": True, **chosen} if "--tool-call-parser" in chosen else chosen
