"""Asks SGLang what it makes of a command line on a rig that is not there. Run by a Python that has SGLang's CUDA wheel:

    python -m rigup.programs.judge.sglang < CASES > ANSWERS        a line of JSON for each

Cases and answers are as in vllm.py. SGLang's own ServerArgs resolve themselves as its server's do before any process
starts: kernels, page, types and limits. Its configurator of pools then divides the cache of the case. The model is not
built, so that weights are not told; what the configurator asks of it stands in for it.
"""

from __future__ import annotations

import os
from functools import partial
from types import SimpleNamespace
from typing import Any

from . import simulated_gpus
from .cases import answer_each, model_folder, of_this_machine, stopped

SETTLED = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "moe_runner_backend",
    "fp8_gemm_runner_backend",
    "fp4_gemm_runner_backend",
    "sampling_backend",
    "mm_attention_backend",
    "linear_attn_backend",
    "mamba_backend",
    "kv_cache_dtype",
    "page_size",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "max_running_requests",
    "mem_fraction_static",
    "quantization",
    "context_length",
)


GIB = 1 << 30


def cache_of(server_args: Any, cache_mib: float) -> dict[str, Any]:
    """How the first rank of each pipeline stage divides as much cache; of all stages the one with the fewest tokens."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import AttentionArch, ModelConfig
    from sglang.srt.distributed.utils import get_pp_indices
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
    from sglang.srt.model_loader.loader import _get_quantization_config, get_model_architecture
    from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish

    KVCacheConfigurator._apply_token_constraints = lambda self, tokens: tokens  # which asks the other stages
    publish(server_args, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
    config = ModelConfig.from_server_args(server_args)
    weights = _get_quantization_config(config, LoadConfig())
    window = getattr(get_model_architecture(config)[0], "get_attention_sliding_window_size", None)
    stages = get_parallel().pp_size
    found = []
    for stage in range(stages):
        first, end = get_pp_indices(config.num_hidden_layers, stage, stages)
        model = SimpleNamespace(start_layer=first, end_layer=end, quant_config=weights, config=config.hf_config)
        if window:
            model.get_attention_sliding_window_size = partial(window, model)
        pools = _configurator(server_args, config, model, AttentionArch)
        found.append(_divided(pools, cache_mib))
    return min(found, key=lambda divided: int(divided["tokens"]))


def _configurator(server_args: Any, config: Any, model: Any, architectures: Any) -> Any:
    """SGLang's own, as its model runner makes it."""
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
    from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices
    from sglang.srt.model_executor.model_runner_components.load_model_utils import resolve_sliding_window_size
    from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
        resolve_spec_aux_hidden_state_config,
    )
    from sglang.srt.runtime_context import get_model, get_parallel, get_schedule, get_spec
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    algorithm = SpeculativeAlgorithm.from_string(get_spec().speculative_algorithm)
    name, kind = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=get_model().kv_cache_dtype,
        model=model,
        model_dtype=config.dtype,
        is_draft_worker=False,
        is_dflash=algorithm.is_dflash_family(),
        speculative_draft_attention_backend=None,
    )
    return KVCacheConfigurator(
        device="cuda",
        gpu_id=0,
        attn_dp_size=get_parallel().attn_dp_size,
        pp_size=get_parallel().pp_size,
        pp_group=None,
        model=model,
        model_config=config,
        server_args=server_args,
        kv_cache_dtype=kind,
        kv_cache_dtype_str=name or get_model().kv_cache_dtype,
        model_dtype=config.dtype,
        page_size=get_schedule().page_size,
        sliding_window_size=resolve_sliding_window_size(model, config),
        spec_algorithm=algorithm,
        is_draft_worker=False,
        post_capture_kv_active=False,
        spec_aux_config=resolve_spec_aux_hidden_state_config(
            server_args=server_args, model_config=config, spec_algorithm=algorithm, is_draft_worker=False
        ),
        is_hybrid_swa=config.is_hybrid_swa,
        is_hybrid_swa_compress=config.is_hybrid_swa_compress,
        use_mla_backend=config.attention_arch == architectures.MLA,
        layer_info=resolve_layer_indices(model=model, model_config=config, is_draft_worker=False),
        forward_stream=None,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        memory_pool_config=None,
    )


def _divided(pools: Any, cache_mib: float) -> dict[str, Any]:
    from sglang.srt.model_executor.pool_configurator import create_memory_pool_configurator
    from sglang.srt.runtime_context import get_schedule

    left = cache_mib / 1024
    if pools.mambaish_config is not None:
        left = pools._handle_max_mamba_cache(left)
    found = pools.config_from_budget(int(left * GIB))
    found.max_running_requests = pools.resolve_max_num_reqs(found.max_total_num_tokens)
    found = create_memory_pool_configurator(pools).finalize_with_max_running_requests(found)
    return {
        "type": str(pools.kv_cache_dtype).rpartition(".")[2],
        "tokens": found.max_total_num_tokens,
        "window_tokens": found.swa_max_total_num_tokens,
        "states": get_schedule().max_mamba_cache_size,
        "requests": found.max_running_requests,
    }


def judged(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to one case. reached: the last of arguments, configuration, cache."""
    from sglang.srt.server_args import prepare_server_args

    answer: dict[str, Any] = {"reached": "nothing"}
    try:
        taken = prepare_server_args(["--model-path", model_folder(case), *case["arguments"], "--skip-tokenizer-init"])
        answer["reached"] = "arguments"
        taken.resolve_once()
        from sglang.srt.arg_groups.overrides import resolving_view

        view = resolving_view(taken)
        answer["settled"] = {name: getattr(view, name) for name in SETTLED if hasattr(view, name)}
        answer["reached"] = "configuration"
        if "cache_mib" in case:
            answer["cache"] = cache_of(taken, case["cache_mib"])
            answer["reached"] = "cache"
    except (Exception, SystemExit) as error:
        answer["stopped"] = stopped(error)
    return answer


def main() -> None:
    """Answers each case of standard input, in a fork of its own."""

    def load(first: dict[str, Any]) -> None:
        """What all forks share."""
        os.environ.update(first["environment"])
        simulated_gpus.install(of_this_machine(first["gpu"]), first["gpus"], "pynvml")
        import sglang.srt.arg_groups.overrides
        import sglang.srt.arg_groups.pipeline
        import sglang.srt.configs.model_config
        import sglang.srt.model_loader
        import sglang.srt.models.registry
        import sglang.srt.server_args  # noqa: F401

    answer_each(load, judged)


if __name__ == "__main__":
    main()
