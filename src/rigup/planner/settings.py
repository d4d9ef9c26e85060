"""What an engine's own settings are worth in memory: decided here, unless the service's flags say otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rigup.catalogue.engines import Engine
from rigup.rig import Rig
from rigup.service import FlagValue, Service

# Parts of a GPU that the engine may take, tried in this order: vLLM's default first. 0.97 has been run on 96 GB cards
# (rtx6kpro, minimax-m25.md, AWQ), where it leaves 2.9 GiB; on small cards it would leave too little.
_FRACTIONS = (0.90, 0.95)
_LARGE_GPU_FRACTIONS = (0.90, 0.95, 0.97)
# vLLM 0.33.0 arg_utils: prompt tokens in one step by GPU memory, 70 GiB being the line.
_LARGE_GPU_MIB = 70 * 1024
_BATCHED_TOKENS = 2048
_LARGE_GPU_BATCHED_TOKENS = 8192
# llama-server's --ubatch-size when nobody sets it.
_MICRO_BATCH = 512
# vLLM 0.33.0 arg_utils: sequences at once for an API server, by the same line. Sixteen, where memory is
# short, cost 61 MiB.
_SEQUENCES = 256
_LARGE_GPU_SEQUENCES = 1024
_LEAST_SEQUENCES = 16


_SGLANG_FLAGS = ("--mem-fraction-static", "--chunked-prefill-size", "--max-running-requests", "--disable-cuda-graph")
_VLLM_FLAGS = ("--gpu-memory-utilization", "--max-num-batched-tokens", "--max-num-seqs", "--enforce-eager")

_PARTITION_VARIABLES = {"vllm": "VLLM_PP_LAYER_PARTITION", "sglang": "SGLANG_PP_LAYER_PARTITION"}

Attempt = tuple[float, int, int]


@dataclass(frozen=True, slots=True)
class Settings:
    """Candidate's fields of the same names.

    attempts: (memory_fraction, batched_tokens, sequences) to try in order, the engine's own defaults first.
    """

    attempts: tuple[Attempt, ...]
    fraction_given: bool = False
    eager: bool = False
    cpu_offload_gib: int = 0
    asked_partition: tuple[int, ...] = ()


def settings_of(engine: Engine, service: Service, rig: Rig, gpu_indices: Sequence[int]) -> Settings:
    """The settings for one engine: the service's flags where it gives them."""
    flags = service.flags
    if engine.name == "llama.cpp":
        micro_batch = _whole(flags, ("--ubatch-size", "-ub"), _MICRO_BATCH)
        slots = _whole(flags, ("--parallel", "-np"), service.concurrency)
        return Settings(attempts=((0.0, micro_batch, slots),))
    smallest = min((rig.gpus[index].memory_mib or _LARGE_GPU_MIB for index in gpu_indices), default=0)
    large = smallest >= _LARGE_GPU_MIB
    tokens = _LARGE_GPU_BATCHED_TOKENS if large else _BATCHED_TOKENS
    few = max(_LEAST_SEQUENCES, service.concurrency)
    if engine.name == "sglang":
        fraction_flag, tokens_flag, sequences_flag, eager_flag = _SGLANG_FLAGS
        attempts = _attempts(_FRACTIONS, tokens, (few,))
    else:
        fraction_flag, tokens_flag, sequences_flag, eager_flag = _VLLM_FLAGS
        many = max(_LARGE_GPU_SEQUENCES if large else _SEQUENCES, service.concurrency)
        attempts = _attempts(_LARGE_GPU_FRACTIONS if large else _FRACTIONS, tokens, (many, few))
    given = (
        _part(flags, fraction_flag),
        _whole(flags, (tokens_flag,), 0),
        _whole(flags, (sequences_flag,), 0),
    )
    return Settings(
        attempts=tuple(dict.fromkeys(_overridden(attempt, given) for attempt in attempts)),
        fraction_given=given[0] > 0,
        eager=bool(flags.get(eager_flag)),
        cpu_offload_gib=_whole(flags, ("--cpu-offload-gb",), 0) if engine.name == "vllm" else 0,
        asked_partition=_partition(service.environment.get(_PARTITION_VARIABLES[engine.name], "")),
    )


def _attempts(fractions: tuple[float, ...], tokens: int, sequences: tuple[int, ...]) -> list[Attempt]:
    """Larger parts of the GPU before fewer sequences, and fewer sequences before smaller steps."""
    first, last = sequences[0], sequences[-1]
    attempts = [(fraction, tokens, first) for fraction in fractions]
    return [*attempts, (fractions[-1], tokens, last), (fractions[-1], _BATCHED_TOKENS, last)]


def _overridden(attempt: Attempt, given: Attempt) -> Attempt:
    """An attempt with what the flags give in place of what would be tried."""
    fraction, tokens, sequences = attempt
    return given[0] or fraction, given[1] or tokens, given[2] or sequences


def _whole(flags: dict[str, FlagValue], names: Sequence[str], default: int) -> int:
    """The whole number that a flag gives; a flag that is no such number is the rules' business."""
    for name in names:
        value = flags.get(name)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            try:
                return max(int(float(value)), 0) or default
            except ValueError:
                return default
    return default


def _part(flags: dict[str, FlagValue], name: str) -> float:
    """The part that a flag gives, 0 if none."""
    value = flags.get(name)
    try:
        part = float(value) if isinstance(value, (int, float, str)) else 0.0
    except ValueError:
        return 0.0
    return part if 0 < part <= 1 else 0.0


def _partition(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    return tuple(int(part) for part in parts) if text and all(part.strip().isdigit() for part in parts) else ()
