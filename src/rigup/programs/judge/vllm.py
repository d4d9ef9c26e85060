"""Asks vLLM what it would do with a model on a rig that is not there. Run by a Python that has vLLM's CUDA wheel:

    python -m rigup.programs.judge.vllm < CASES > ANSWERS        a line of JSON for each

All cases of one run have the same "gpu" (simulated_gpus.install), "gpus" and "environment", which vLLM reads while it
is imported. Each has "config" (of config.json) and "files" (name to what lies beside it), or "folder", which has them;
"arguments" (vLLM's command line after the folder), "words" (a regular expression: the lines of the log to tell) and
"cache_mib" (what a GPU has for the KV cache), or "beside_mib" (what it holds beside weights and cache, within the part
of its memory that vLLM takes): only a real profile could say that.

On a host "gpu" has an "index" in place of "multiprocessors", which its driver then says.

vLLM's own EngineCore starts with its own worker and model runner, each case in a fork of its own. GPUs, process groups
and the profile are stood in for; weights are shapes. Nothing is allocated, so it does not tell whether a plan fits.
"""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import simulated_gpus
from .cases import answer_each, in_a_fork, model_folder, of_this_machine, stopped

MIB = 1 << 20
# What a layer's method calls the kernel that it chose.
_KERNEL_NAMES = (
    "mxfp4_backend",
    "fp8_backend",
    "nvfp4_backend",
    "unquantized_backend",
    "mxfp8_backend",
    "int8_backend",
    "wna16_backend",
    "kernel",
    "backend",
)


def stand_in_for_processes() -> None:
    """One process plays one rank of many: groups of torch's fake backend, no shared memory, no custom all-reduce."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators import base_device_communicator, shm_broadcast
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform

    real_init, real_group = dist.init_process_group, dist.new_group

    def init(backend: Any = None, rank: int = 0, world_size: int = 1, **kwargs: Any) -> None:
        real_init("fake", store=FakeStore(), rank=rank, world_size=world_size)

    dist.init_process_group = init
    dist.new_group = lambda ranks=None, **kwargs: real_group(ranks, backend="fake")
    parallel_state._node_count = lambda group: 1
    shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *args, **kwargs: None)
    kind = type(current_platform)
    communicator = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
    kind.get_device_communicator_cls = classmethod(lambda cls: communicator)
    base = base_device_communicator.DeviceCommunicatorBase
    real_start = base.__init__

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        real_start(self, *args, **kwargs)
        if self.use_all2all:  # data parallelism asks the expert group's manager for its size
            self.all2all_manager = SimpleNamespace(
                world_size=self.world_size,
                rank=self.rank_in_group,
                support_fault_tolerance=False,
                dp_world_size=self.world_size,
                get_handle=lambda args: None,
            )

    base.__init__ = start
    kind.get_current_memory_usage = classmethod(lambda cls, device=None: 0)
    registry._LazyRegisteredModel.inspect_model_cls = lambda self: registry._ModelInfo.from_model_cls(
        self.load_model_cls()
    )


def stand_in_for_weights(skipped: Counter[str], loaded: list[int]) -> None:
    """No values are loaded. A repacking that needs them leaves its layer as it was and is told in `skipped`."""
    from vllm.model_executor.model_loader import base_loader, dummy_loader, utils

    dummy_loader.DummyModelLoader.load_weights = lambda self, model, model_config: None

    def guarded(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def inner(*args: Any) -> Any:
            try:
                return call(*args)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                skipped[f"{name}: {_first_line(error)} ({Path(where.filename).name}:{where.lineno})"] += 1

        return inner

    real = utils.process_weights_after_loading

    def process(model: Any, model_config: Any, device: Any) -> Any:
        loaded.append(_parameter_bytes(model))  # before any repacking
        for _, module in model.named_modules():
            for thing in (getattr(module, "quant_method", None), module):
                if (
                    hasattr(thing, "process_weights_after_loading")
                    and not hasattr(thing, "_guarded")
                    and thing is not model
                ):
                    thing.process_weights_after_loading = guarded(  # type: ignore[union-attr]
                        thing.process_weights_after_loading,  # type: ignore[union-attr]
                        type(thing).__name__,
                    )
                    thing._guarded = True  # type: ignore[union-attr]
        return real(model, model_config, device)

    base_loader.process_weights_after_loading = process


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"


def _parameter_bytes(model: Any) -> int:
    storages = [one.untyped_storage() for one in (*model.parameters(), *model.buffers())]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def executor_class(case: dict[str, Any], answer: dict[str, Any], loaded: list[int]) -> Any:
    """An Executor that plays the first rank of each pipeline stage, one after the other."""
    from vllm.platforms import current_platform
    from vllm.v1.executor.abstract import Executor
    from vllm.v1.serial_utils import run_method
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    class Judge(Executor):  # type: ignore[misc]
        supports_pp = True

        def _start(self, rank: int) -> Any:
            worker = WorkerWrapperBase(rpc_rank=rank)
            told = {
                "vllm_config": self.vllm_config,
                "local_rank": rank % 8,  # torch's device guard without a GPU knows eight devices
                "rank": rank,
                "distributed_init_method": "tcp://127.0.0.1:1",
                "is_driver_worker": rank == 0,
            }
            worker.init_worker(all_kwargs=[told] * (rank + 1))
            worker.init_device()
            worker.load_model()
            current_platform.update_block_size_for_backend(self.vllm_config)
            return worker

        def _init_executor(self) -> None:
            world, tensor = self.parallel_config.world_size, self.parallel_config.tensor_parallel_size
            first, *others = range(0, world, tensor)
            asked = {rank: in_a_fork(partial(self._start_and_ask, rank)) for rank in others}
            self.worker = self._start(first)
            asked[first] = self._ask(self.worker)
            self.specs = [asked[rank - rank % tensor][0] for rank in range(world)]
            self.layouts = [asked[rank - rank % tensor][1] for rank in range(world)]
            answer["stages"] = [asked[rank][2] for rank in sorted(asked)]

        def _start_and_ask(self, rank: int) -> Any:
            return self._ask(self._start(rank))

        def _ask(self, worker: Any) -> tuple[Any, Any, dict[str, Any]]:
            inner = worker.worker
            layouts = (
                inner.get_supported_kv_cache_layouts() if hasattr(inner, "get_supported_kv_cache_layouts") else None
            )
            model = inner.get_model()
            model = model.unwrap() if hasattr(model, "unwrap") else model
            weights = {"weights_bytes": simulated_gpus.bytes_of(model), "loaded_bytes": sum(loaded)}
            return worker.get_kv_cache_spec(), layouts, {**weights, **kernels_of(model, self.vllm_config)}

        def get_kv_cache_specs(self) -> list[Any]:
            return self.specs

        def get_supported_kv_cache_layouts(self) -> list[Any]:
            return self.layouts

        def determine_available_memory(self) -> list[int]:
            answer["reached"] = "weights"
            return [self._cache_bytes(rank) for rank in range(self.parallel_config.world_size)]

        def _cache_bytes(self, rank: int) -> int:
            if "cache_mib" in case:
                return int(case["cache_mib"] * MIB)
            cache = self.vllm_config.cache_config
            if cache.kv_cache_memory_bytes:
                return int(cache.kv_cache_memory_bytes)
            taken = int(case["gpu"]["memory_mib"] * MIB * cache.gpu_memory_utilization)
            stage = answer["stages"][rank // self.parallel_config.tensor_parallel_size]
            return taken - int(stage["weights_bytes"]) - int(case["beside_mib"] * MIB)

        def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
            answer["cache"] = cache_of(self.vllm_config, kv_cache_configs)
            answer["reached"] = "cache"
            self.worker.initialize_from_config(kv_cache_configs)
            answer["reached"] = "graphs"

        def compile_or_warm_up_model(self) -> None:
            pass

        def collective_rpc(
            self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None, non_block: bool = False
        ) -> list[Any]:
            return [run_method(self.worker, method, args, kwargs or {})]

        def check_health(self) -> None:
            pass

    return Judge


def kernels_of(model: Any, vllm_config: Any) -> dict[str, Any]:
    """Which kernels layers took for attention, products and experts, and how many layers each.

    doubts: attention classes that a model names without asking whether they can do it, and that do not claim to.
    """
    from vllm.platforms import current_platform

    linear, experts, attention = Counter[str](), Counter[str](), Counter[str]()
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if method is not None:
            kind = type(method).__name__
            is_experts = "moe" in type(module).__name__.lower() or "MoE" in kind
            (experts if is_experts else linear)[f"{kind} {_kernel(method)}".strip()] += 1
    doubts = set()
    capability = current_platform.get_device_capability()
    for layer in vllm_config.compilation_config.static_forward_context.values():
        if hasattr(layer, "get_attn_backend"):
            backend = layer.get_attn_backend()
            attention[backend.get_name()] += 1
            if not backend.supports_compute_capability(capability):
                doubts.add(f"{backend.get_name()} does not claim compute capability {capability.as_version_str()}")
    return {
        "attention": dict(attention),
        "linear": dict(linear),
        "experts": dict(experts),
        "doubts": sorted(doubts),
    }


def _kernel(method: Any) -> str:
    """The chosen kernel of a layer's method: the name of an enumeration's value or of a class."""
    for holder in (method, getattr(method, "scheme", None)):
        for name in _KERNEL_NAMES:
            chosen = getattr(holder, name, None)
            if chosen is None or isinstance(chosen, (bool, int)):
                continue
            if isinstance(chosen, str):
                return chosen
            return str(chosen).rpartition(".")[2] if hasattr(chosen, "value") else type(chosen).__name__
    return ""


def cache_of(vllm_config: Any, configs: list[Any]) -> dict[str, Any]:
    """Groups, pages and blocks that vLLM planned, and the requests at once that it would log."""
    from vllm.utils.math_utils import cdiv
    from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_capacity

    config = generate_scheduler_kv_cache_config(configs)
    tokens, concurrency = get_kv_cache_capacity(vllm_config, configs[0])
    groups = []
    for group in config.kv_cache_groups:
        spec = group.kv_cache_spec
        blocks = cdiv(spec.max_memory_usage_bytes(vllm_config), spec.page_size_bytes)
        groups.append(
            {
                "layers": len(group.layer_names),
                "spec": type(spec).__name__,
                "block_tokens": spec.block_size,
                "page_bytes": spec.page_size_bytes,
                "blocks_per_request": blocks,
            }
        )
    try:  # 0.33.0; before, the function of this purpose lay elsewhere
        from vllm.v1.core.kv_cache_config_builder import get_kv_cache_config_builder
        from vllm.v1.core.kv_cache_planning import _pool_bytes_per_block_from_builder

        builder = get_kv_cache_config_builder(vllm_config)
        block_bytes = _pool_bytes_per_block_from_builder(builder, vllm_config, configs[0].kv_cache_groups)
    except ImportError:
        from vllm.v1.core.kv_cache_utils import _pool_bytes_per_block

        asked = {"vllm_config": vllm_config, "kv_cache_groups": configs[0].kv_cache_groups}
        takes = signature(_pool_bytes_per_block).parameters  # 0.25.1 both, 0.29.0 the groups
        block_bytes = _pool_bytes_per_block(**{name: asked[name] for name in takes})
    return {
        "blocks": config.num_blocks,
        "block_bytes": block_bytes,
        "tokens": tokens,
        "requests": round(concurrency, 3),
        "groups": groups,
    }


def settled(vllm_config: Any) -> dict[str, Any]:
    """What vLLM decided before any worker started, or while the workers did."""
    cache, scheduler, compilation = (
        vllm_config.cache_config,
        vllm_config.scheduler_config,
        vllm_config.compilation_config,
    )
    return {
        "architecture": vllm_config.model_config.architecture,
        "quantization": vllm_config.model_config.quantization,
        "context": vllm_config.model_config.max_model_len,
        "kv_cache_dtype": cache.cache_dtype,
        "block_tokens": cache.block_size,
        "prefix_caching": cache.enable_prefix_caching,
        "sequences": scheduler.max_num_seqs,
        "batched_tokens": scheduler.max_num_batched_tokens,
        "batches_in_flight": getattr(vllm_config, "max_concurrent_batches", None),
        "graphs": str(compilation.cudagraph_mode).rpartition(".")[2],
    }


def judged(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to one case. reached: the last of arguments, configuration, weights, cache, graphs, ready."""
    import vllm.entrypoints
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    # 0.33.0, 0.29.0, 0.25.1
    folder = Path(vllm.entrypoints.__path__[0])
    place = next(name for name in ("common", "launchers", "openai") if (folder / name / "cli_args.py").exists())
    make_arg_parser = import_module(f"vllm.entrypoints.{place}.cli_args").make_arg_parser

    answer: dict[str, Any] = {"reached": "nothing"}
    skipped, loaded = Counter[str](), list[int]()
    try:
        stand_in_for_processes()
        stand_in_for_weights(skipped, loaded)
        parser = make_arg_parser(FlexibleArgumentParser())
        always = ["--load-format", "dummy", *([] if "folder" in case else ["--skip-tokenizer-init"])]
        arguments = parser.parse_args([model_folder(case), *case["arguments"], *always])
        arguments.model = getattr(arguments, "model_tag", None) or arguments.model
        answer["reached"] = "arguments"
        config = AsyncEngineArgs.from_cli_args(arguments).create_engine_config(UsageContext.OPENAI_API_SERVER)
        answer["settled"] = settled(config)
        answer["reached"] = "configuration"
        from vllm.v1.engine.core import EngineCore

        with simulated_gpus.fake_mode():
            EngineCore(config, executor_class=executor_class(case, answer, loaded), log_stats=False)
        answer["settled"] = settled(config)
        answer["reached"] = "ready"
    except (Exception, SystemExit) as error:
        answer["stopped"] = stopped(error)
    answer["not_repacked"] = dict(sorted(skipped.items()))
    return answer


def main() -> None:
    """Answers each case of standard input, in a fork of its own."""
    defaults = {"VLLM_LOGGING_LEVEL": "INFO", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}

    def load(first: dict[str, Any]) -> None:
        """What all forks share."""
        os.environ.update({**defaults, **first["environment"]})
        simulated_gpus.install(of_this_machine(first["gpu"]), first["gpus"], "vllm.third_party.pynvml")
        import vllm.platforms
        import vllm.third_party

        vllm.platforms._current_platform = None  # asked again, should the import have looked too early
        import vllm.engine.arg_utils
        import vllm.model_executor.model_loader
        import vllm.v1.engine.core
        import vllm.v1.worker.gpu_worker

    answer_each(load, judged)


if __name__ == "__main__":
    main()
