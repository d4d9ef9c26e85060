"""Asks SGLang what it makes of a command line on a rig that is not there. Run by a Python that has SGLang's CUDA wheel:

    python -m rigup.programs.judge.sglang < CASES > ANSWERS        a line of JSON for each

Cases and answers are as in vllm.py. SGLang's own ServerArgs resolve themselves as its server's do before any process
starts: kernels, page, types and limits. Its configurator of pools then divides the cache of the case. The model is not
built, so that weights are not told; what the configurator asks of it stands in for it.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import simulated_gpus
from .cases import answer_each, in_a_fork, model_folder, of_this_machine, stopped

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
WEIGHING_SECONDS = 150
"""Longer than any model that is built takes: one that waits for something keeps no cache from being told."""


def stand_in_for_processes() -> None:
    """Ranks talk to nobody and hold no communicator, and DeepGEMM does not look for a card."""
    import torch
    import torch.distributed as dist
    from sglang.srt.distributed.parallel_state import GroupCoordinator
    from torch.testing._internal.distributed.fake_pg import FakeStore

    real_init, real_group, real_start = dist.init_process_group, dist.new_group, GroupCoordinator.__init__
    takes = inspect.signature(real_start)

    def init(*args: Any, rank: int = 0, world_size: int = 1, **kwargs: Any) -> None:
        real_init("fake", store=FakeStore(), rank=rank, world_size=world_size)

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        given = takes.bind(self, *args, **kwargs)
        given.arguments.update({name: False for name in takes.parameters if name.startswith("use_")})
        real_start(*given.args, **given.kwargs)

    dist.init_process_group = init
    dist.new_group = lambda ranks=None, **kwargs: real_group(ranks, backend="fake")
    GroupCoordinator.__init__ = start
    if importlib.util.find_spec("deep_gemm"):
        deep_gemm: Any = importlib.import_module("deep_gemm")
        deep_gemm.get_num_sms = lambda: torch.cuda.get_device_properties(0).multi_processor_count


def weights_of(server_args: Any, stage: int) -> dict[str, Any]:
    """Bytes of the first rank of a stage, as stored and repacked; "stopped" where its model cannot be built.

    not_repacked: layers that keep what was stored, because repacking looks at values or calls a compiled kernel.
    """
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.layers.moe.utils import initialize_moe_config
    from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish

    rank = stage * get_parallel().tp_size
    publish(server_args, role="scheduler", ranks=SpawnRanks(world_rank=rank, gpu_id=0))
    world = get_parallel().tp_size * get_parallel().pp_size
    stand_in_for_processes()
    with simulated_gpus.fake_mode():
        init_distributed_environment(
            backend="nccl", world_size=world, rank=rank, local_rank=0, distributed_init_method="tcp://127.0.0.1:1"
        )
        initialize_model_parallel()
        initialize_dp_attention(server_args)
        initialize_moe_config()
        config = ModelConfig.from_server_args(server_args)
        try:
            model = _built(config)
        except Exception as error:
            if (said := stopped(error))["package"] != "sglang":
                raise
            return {"stopped": said}
        loaded = simulated_gpus.bytes_of(model)
        return {"loaded_bytes": loaded, **_repacked(model)}


def _built(config: Any) -> Any:
    """The model without values: SGLang's DummyModelLoader, up to where it would fill them in."""
    import torch
    from sglang.srt.configs.load_config import LoadConfig, LoadFormat
    from sglang.srt.model_loader import loader

    load = LoadConfig(load_format=LoadFormat.DUMMY)
    weights = loader._get_quantization_config(config, load)
    with loader.set_default_torch_dtype(config.dtype), torch.device("cuda"):
        return loader._initialize_model(config, load, weights)


def _repacked(model: Any) -> dict[str, Any]:
    """What is held in the end: layers that are alike are repacked once, which takes minutes where experts are many."""
    from sglang.srt.model_loader.loader import post_load_weights

    skipped = Counter[str]()

    def attempt(call: Callable[[], Any], name: str) -> None:
        try:
            call()
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            said = (str(error).splitlines() or [""])[0][:160]
            skipped[f"{name}: {type(error).__name__}: {said} ({Path(at.filename).name}:{at.lineno})"] += 1

    attempt(partial(post_load_weights, model), type(model).__name__)
    held, more = simulated_gpus.bytes_of(model), dict[Any, int]()
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if not hasattr(method, "process_weights_after_loading"):
            continue
        sizes = tuple((name, tuple(one.shape), one.dtype) for name, one in module.named_parameters(recurse=False))
        kind = (type(method), type(module), sizes)
        if kind not in more:
            own = [module, vars(method)]
            before = simulated_gpus.bytes_of(own)
            attempt(partial(method.process_weights_after_loading, module), type(method).__name__)  # type: ignore[union-attr]
            more[kind] = simulated_gpus.bytes_of(own) - before
        held += more[kind]
    return {"weights_bytes": held, "not_repacked": dict(sorted(skipped.items()))}


def stages_of(server_args: Any) -> dict[str, Any]:
    """stages: what each holds, worked out in a process of its own; "stopped" where SGLang's code ended it.

    not_weighed: why that is not known, where something else did.
    """
    from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish

    publish(server_args, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
    stages, skipped = list[dict[str, Any]](), Counter[str]()
    for stage in range(get_parallel().pp_size):
        try:
            held = in_a_fork(partial(weights_of, server_args, stage), WEIGHING_SECONDS)
        except RuntimeError as error:
            return {"stages": [], "not_weighed": str(error)[:300]}
        if "stopped" in held:
            return {"stages": [], **held}
        skipped.update(held.pop("not_repacked"))
        stages.append(held)
    return {"stages": stages, "not_repacked": dict(skipped)}


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
    """The answer to one case. reached: the last of arguments, configuration, weights, cache.

    A case whose model SGLang does not build has a cache as well.
    """
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
        answer |= stages_of(taken)
        if "stopped" not in answer:
            answer["reached"] = "weights"
        if "cache_mib" in case:
            answer["cache"] = cache_of(taken, case["cache_mib"])
            answer["reached"] = "cache" if "stopped" not in answer else answer["reached"]
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
