"""Numbers from which the plan computes memory must be valid, and options must not add memory that it does not count."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rigup.plain_values import quoted
from rigup.planner.candidate import Candidate
from rigup.planner.engine_memory import MEMORY_OPTIONS, PARTITION_VARIABLES, MemoryOption, partition, whole_number
from rigup.planner.offload import complaints
from rigup.planner.rules.rule import Complaint, engine_name, refuses
from rigup.planner.rules.unmodelled_options import DRAFTS, UNMODELLED
from rigup.service import FlagValue

# The rest of a GPU must be free when an engine starts, after its own CUDA context. A judgement: 2 % of a 24 GB card are
# 0.5 GiB, and rigup has not seen more than 0.97 work.
MOST_OF_A_GPU = 0.98
_CPU_CACHE = "VLLM_CPU_KVCACHE_SPACE"


@refuses(
    "counted-number",
    "vLLM 0.33.0 config/cache.py, config/scheduler.py, v1/worker/utils.py; SGLang 0.5.23 server_args.py; "
    "llama.cpp b11434 arg.cpp",
)
def counted_number(candidate: Candidate) -> Iterator[Complaint]:
    """A number from which memory is computed must be one that the engine accepts."""
    flags = candidate.service.flags
    for counted in MEMORY_OPTIONS[candidate.engine.name] if flags else ():
        named = [name for name in counted.names if name in flags]
        for name in named:
            if not _usable(counted, flags[name]):
                range_, hint = _kind(counted), "leave it out, or write a number in that range"
                yield f"{name} must be {range_}, not {quoted(flags[name])}", hint
        if len(named) > 1:
            yield f"{named[1]} and {named[0]} are the same option", "leave one of them out"
    yield from _variables(candidate)


def _usable(counted: MemoryOption, given: FlagValue) -> bool:
    value = counted.value(given)
    return value is not None and (bool(counted.highest) or value <= MOST_OF_A_GPU)


def _kind(counted: MemoryOption) -> str:
    if counted.highest:
        return f"a whole number from {counted.lowest} to {counted.highest:,}"
    return f"a fraction of the GPU, above 0 and at most {MOST_OF_A_GPU}"


def _variables(candidate: Candidate) -> Iterator[Complaint]:
    environment = candidate.service.environment
    if not environment:
        return
    name = PARTITION_VARIABLES.get(candidate.engine.name, "")
    if (stages := environment.get(name)) is not None and not partition(stages):
        yield f"{name} must list the layers of each stage, not {quoted(stages)}", 'write it like "30,32"'
    space = environment.get(_CPU_CACHE)
    if candidate.engine.name != "vllm" or candidate.gpus or space is None:
        return
    if not whole_number(space):
        yield f"{_CPU_CACHE} must be a whole number of GiB, 1 or more, not {quoted(space)}", "leave it out"
        return
    from rigup.planner.memory.cpu import cache_gib, needed_gib  # few services set its variable

    if (least := needed_gib(candidate, 1)) > cache_gib(candidate):
        yield (
            f"{_CPU_CACHE} {space} cannot hold the {candidate.context:,} tokens of one request: they need {least} GiB",
            f"write {least} or more, leave it out, or use a shorter context",
            "vLLM 0.33.0 v1/core/kv_cache_planning.py: memory needed to serve at least one request",
        )


@refuses("uncounted-option", "the plan: it counts one whole model on the service's GPUs")
def uncounted_option(candidate: Candidate) -> Iterator[Complaint]:
    """Options must not move or add weights or cache without the plan counting it."""
    name = candidate.engine.name
    for option, value in candidate.service.flags.items():
        base = option.partition(".")[0]
        if (found := UNMODELLED[name].get(base)) is not None:
            if str(value) not in found.harmless:
                message = f"{option} changes memory use in a way that the plan does not count"
                yield message, found.hint, found.source
        elif value is not False and base in DRAFTS[name] and _names_a_model(base, option, value):
            yield (
                f"{option} loads a second model, which the plan does not count",
                "set speculative in the service instead, which the plan counts",
            )


@refuses("expert-offload", "llama.cpp b11434 common/arg.cpp: --override-tensor, --cpu-moe")
def expert_offload(candidate: Candidate) -> Iterator[Complaint]:
    """llama.cpp's own options may keep experts in host memory, and nothing that the plan does not count there."""
    if candidate.engine.name == "llama.cpp":
        for wrong in complaints(candidate.service, candidate.model.layers):
            yield wrong, 'write a pattern of experts and CPU, like "ffn_.*_exps=CPU", or set offload in the service'


def _names_a_model(base: str, option: str, value: FlagValue) -> bool:
    """Whether a draft option names a model: some options hold the whole configuration as JSON."""
    if base not in ("--speculative-config", "-sc"):
        return True
    if option != base:
        return option == f"{base}.model"
    try:
        settings = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return False
    return isinstance(settings, dict) and "model" in settings and settings.get("method") != "ngram"


@refuses(
    "decided-variable",
    "the plan: CUDA's device order and the service's GPUs; llama.cpp b11434 arg.cpp set_env: LLAMA_ARG_",
)
def decided_variable(candidate: Candidate) -> Iterator[Complaint]:
    """Variables must not override what the plan decides: the GPUs in use and llama.cpp's options."""
    for name in candidate.service.environment:
        if name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES") and candidate.rig.gpus:
            yield f"{name} is decided by the plan", "set gpus in the service instead"
        elif name == "CUDA_DEVICE_ORDER" and candidate.rig.gpus:
            yield f"{name} is decided by the plan", "leave it out: rigup numbers GPUs as NVML does"
        elif name.startswith("LLAMA_ARG_") and candidate.engine.name == "llama.cpp":
            yield f"{name} sets an option of {engine_name(candidate)} that the plan does not see", "write it in flags"
